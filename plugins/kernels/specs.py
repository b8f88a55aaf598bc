"""The kernels of one attention shape: their constants and parameter types, for compiling and for launching."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from plugins.kernels.shape import SPLIT, AttentionShape, next_power_of_two, stored_dtype, tiles_for

TRITON_TYPES = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3": "fp8e4nv", "float32": "fp32", "int32": "i32"}

# Element types of the pointer parameters; compute and cache stand for the shape's own. Every other parameter is an
# int32.
POINTERS = {
    "query": "compute",
    "rotated_query": "compute",
    "key": "compute",
    "value": "compute",
    "output": "compute",
    "kv_cache": "cache",
    "position_ids": "int32",
    "query_start": "int32",
    "context_lens": "int32",
    "block_table": "int32",
    "cos": "float32",
    "sin": "float32",
    "partial_output": "float32",
    "partial_state": "float32",
}
SCALARS = ("tokens", "seqs", "max_blocks")


@dataclass(frozen=True)
class KernelSpec:
    """One kernel of a shape. ``role`` names its module in this package and its function alike."""

    role: str
    constants: dict[str, Any]
    num_warps: int
    num_stages: int

    def function(self) -> Any:
        """The Triton function. Raises ImportError without triton."""
        return getattr(importlib.import_module(f"plugins.kernels.{self.role}"), self.role)


def kernel_specs(shape: AttentionShape) -> tuple[KernelSpec, ...]:
    """In launch order; combine_splits only follows a split launch."""
    tiles = tiles_for(shape)
    head_pad = next_power_of_two(shape.head_dim)
    heads = {"NUM_HEADS": shape.num_heads, "HEAD_DIM": shape.head_dim, "HEAD_PAD": head_pad}
    cache = {"NUM_KV_HEADS": shape.num_kv_heads, "BLOCK_SIZE": shape.block_size}
    context = {"WINDOW": shape.window, "SPLIT": SPLIT}
    per_program = min(next_power_of_two(shape.num_heads), 1024 // head_pad)
    write = {
        **heads,
        **cache,
        "ROTARY_DIM": shape.rotary_dim,
        "HEADS_PER_PROGRAM": per_program,
        "QUERY_PROGRAMS": -(-shape.num_heads // per_program) if shape.rotary_dim else 0,
    }
    attention = {
        **heads,
        **cache,
        **context,
        "SCALE": shape.scale,
        "SOFTCAP": shape.softcap,
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
        "BLOCK_TOKENS": tiles.block_tokens,
        "VALUE_PARTS": tiles.value_parts,
    }
    combine = {**heads, **context, "HEADS_PER_PROGRAM": min(next_power_of_two(shape.num_heads), 512 // head_pad)}
    return (
        KernelSpec("rotary_kv_write", write, num_warps=4, num_stages=1),
        KernelSpec("paged_attention", attention, tiles.num_warps, tiles.num_stages),
        KernelSpec("combine_splits", combine, num_warps=4, num_stages=1),
    )


def parameter_type(name: str, shape: AttentionShape) -> str:
    """The type of a parameter that is no constant, as Triton's signatures write it."""
    if name in SCALARS:
        return "i32"
    element = {"compute": shape.compute_dtype, "cache": stored_dtype(shape)}.get(POINTERS[name], POINTERS[name])
    return "*" + TRITON_TYPES[element]
