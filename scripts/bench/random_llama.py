#!/usr/bin/env python3
"""Writes a seeded random Llama as a Hugging Face directory in bfloat16: the speed of a model without its download.

    .venv/bin/python scripts/bench/random_llama.py DIRECTORY [--layers 16]

The defaults are Llama-3.2-1B's shape with SmolLM2's vocabulary of 49152 (1.07 B parameters, 2.1 GB) and its tokenizer,
which is made from the demo model of scripts/test.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from trtc.checkpoint.reader import open_checkpoint

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 8192, 32, 8, 64, 49152
DEMO_MODEL = Path(__file__).parents[2] / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def config(layers: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "eos_token_id": 2,
    }


def shards(layers: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """Names and shapes, a layer at a time."""
    yield {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        yield {
            f"{prefix}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
        }


def random_tensor(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, ml_dtypes.bfloat16)
    return (rng.standard_normal(shape, np.float32) * np.float32(0.02)).astype(ml_dtypes.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    weight_map = {}
    for index, shapes in enumerate(shards(options.layers)):
        file = f"model-{index:05d}.safetensors"
        save_file({name: random_tensor(rng, shape) for name, shape in shapes.items()}, directory / file)
        weight_map |= dict.fromkeys(shapes, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(config(options.layers), indent=2))
    if DEMO_MODEL.is_file():
        open_checkpoint(DEMO_MODEL).write_tokenizer(directory)


if __name__ == "__main__":
    main()
