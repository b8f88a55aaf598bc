"""Step graphs of a few nodes for tests of lowering, and their engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.writer import write_engine
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder
from trtc.graph.reference import evaluate
from trtc.targets.cpu.target import CpuTarget

CONFIG = ModelConfig(
    model_type="toy",
    vocab_size=29,
    hidden_size=24,
    intermediate_size=24,
    num_layers=1,
    num_heads=3,
    num_kv_heads=1,
    head_dim=8,
    max_position_embeddings=64,
    norm="rms",
    norm_eps=1e-6,
    activation="silu",
    gated_mlp=True,
    tie_word_embeddings=False,
    qkv_bias=False,
    attention_out_bias=False,
    mlp_bias=False,
    qk_norm=False,
    attention_scale=0.35,
)
SETTINGS = BuildConfig(
    dtype="float32", tokens_per_block=16, max_num_tokens=32, max_batch_size=4, max_seq_len=64, kv_cache_dtype="float32"
)
HIDDEN = CONFIG.hidden_size

Body = Callable[[GraphBuilder, ir.Value], ir.Value]
Array = np.ndarray[Any, Any]


def random_constant(g: GraphBuilder, name: str, *shape: int) -> ir.Value:
    """Seeded by the name; rows of a matrix have about unit norm."""
    values = np.random.default_rng(sum(name.encode())).standard_normal(shape, np.float32)
    return g.constant(values / np.float32(shape[-1] ** 0.5 if len(shape) > 1 else 1), name)


def linear(g: GraphBuilder, x: ir.Value, name: str, out: int, bias: bool = False) -> ir.Value:
    columns = int(x.shape[1])  # type: ignore[index, arg-type]
    inputs = [x, random_constant(g, f"{name}.weight", out, columns)]
    if bias:
        inputs.append(random_constant(g, f"{name}.bias", out))
    return g.op("Gemm", *inputs, transB=1, name=name)


def attend(g: GraphBuilder, query: ir.Value, key: ir.Value, value: ir.Value, **changes: Any) -> tuple[ir.Value, ...]:
    attributes = {
        "layer": 0,
        "num_heads": 3,
        "num_kv_heads": 1,
        "head_dim": 8,
        "scale": 0.35,
        "window": 0,
        "softcap": 0.0,
        **changes,
    }
    inputs = (query, key, value, g.kv_caches[0], g.query_start, g.context_lens, g.block_table)
    return g.emit("PagedAttention", *inputs, domain=ops.DOMAIN, name="attention", **attributes)


def step_graph(body: Body) -> ir.Model:
    """Embedding, ``body`` on [tokens, HIDDEN], one attention, logits of the wanted rows."""
    g = GraphBuilder(CONFIG, block_size=16)
    x = g.op("Gather", random_constant(g, "table", CONFIG.vocab_size, HIDDEN), g.input_ids, axis=0, name="embed")
    x = body(g, x)
    key, value = linear(g, x, "k_proj", 8), linear(g, x, "v_proj", 8)
    attended, kv_out = attend(g, x, key, value)
    x = g.op("Add", x, attended, name="residual")
    wanted = g.op("Gather", x, g.logit_rows, axis=0, name="wanted_rows")
    return g.finish(linear(g, wanted, "lm_head", CONFIG.vocab_size), [kv_out])


def build_toy_engine(model: ir.Model, output: Path, settings: BuildConfig = SETTINGS) -> Path:
    with write_engine(output) as draft:
        (draft.directory / "tokenizer.json").write_text('{"toy": true}')
        artifact = CpuTarget().lower(model, CONFIG, settings, draft.rank_path())
        draft.seal(artifact=artifact, model_config=CONFIG, build_config=settings, source="test", fingerprint="00")
    return output


def step_inputs(tokens: int = 19, seed: int = 0) -> dict[str, Array]:
    """Two sequences of 1 and ``tokens - 1`` fresh tokens; logits of every row."""
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(0, CONFIG.vocab_size, tokens).astype(np.int32),
        "position_ids": np.array([0, *range(tokens - 1)], np.int32),
        "query_start": np.array([0, 1, tokens], np.int32),
        "context_lens": np.array([1, tokens - 1], np.int32),
        "block_table": np.array([[3, 0], [1, 2]], np.int32),
        "logit_rows": np.arange(tokens, dtype=np.int32),
    }


def engine_logits(engine: Path, inputs: dict[str, Array]) -> Array:
    from trtc import _core

    model = _core.CpuModel(str(engine), 1)
    model.allocate_kv_cache(4)
    logits: Array = model.run(**inputs)
    return logits


def reference_logits(model: ir.Model, inputs: dict[str, Array]) -> Array:
    cache = np.zeros((4, 2, CONFIG.num_kv_heads, 16, CONFIG.head_dim), np.float32)
    return evaluate(model, {**inputs, "kv_cache.0": cache})["logits"]
