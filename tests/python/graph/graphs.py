"""A small hand-made step graph for tests of the graph layer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from trtc.checkpoint.model_config import ModelConfig
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder

CONFIG = ModelConfig(
    model_type="toy",
    vocab_size=11,
    hidden_size=8,
    intermediate_size=8,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    max_position_embeddings=32,
    norm="rms",
    norm_eps=1e-6,
    activation="silu",
    gated_mlp=True,
    tie_word_embeddings=True,
    qkv_bias=False,
    attention_out_bias=False,
    mlp_bias=False,
    qk_norm=False,
    attention_scale=0.5,
)
BLOCK_SIZE = 4


def attend(g: GraphBuilder, query: ir.Value, key: ir.Value, **changes: object) -> tuple[ir.Value, ...]:
    attributes = {
        "layer": 0,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 4,
        "scale": 0.5,
        "window": 0,
        "softcap": 0.0,
    }
    inputs = (query, key, key, g.kv_caches[0], g.query_start, g.context_lens, g.block_table)
    return g.emit("PagedAttention", *inputs, domain=ops.DOMAIN, name="attention", **{**attributes, **changes})


def toy_graph() -> ir.Model:
    """Embedding, one attention, tied logits; weights are seeded."""
    rng = np.random.default_rng(0)
    g = GraphBuilder(CONFIG, BLOCK_SIZE)
    table = g.constant(rng.standard_normal((11, 8), np.float32), "table")
    x = g.op("Gather", table, g.input_ids, axis=0, name="embed")
    with g.scope("layers.0"):
        key = g.op("Gemm", x, g.constant(rng.standard_normal((4, 8), np.float32), "k.weight"), transB=1, name="k")
        attended, kv_out = attend(g, x, key)
        x = g.op("Add", x, attended, name="residual")
    wanted = g.op("Gather", x, g.logit_rows, axis=0, name="wanted_rows")
    return g.finish(g.op("Gemm", wanted, table, transB=1, name="lm_head"), [kv_out])


def node(model: ir.Model, name: str) -> ir.Node:
    return next(node for node in model.graph if node.name == name)
