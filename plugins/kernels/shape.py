"""What the kernels are compiled for, and the tile sizes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIMS = (64, 80, 96, 128, 256)
BLOCK_SIZES = (16, 32, 64, 128)
MAX_GROUP = 8  # query heads that share one KV head

SPLIT = 512  # positions of a split of the context: fixed, for results depend on it in their last bits


@dataclass(frozen=True)
class AttentionShape:
    """One attention layer, as the fields of the plugin name it."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    scale: float
    rotary_dim: int = 0  # channels of each head that are rotated, 0 for none
    window: int = 0  # positions a row sees, itself included, 0 for all
    softcap: float = 0.0  # 0 for none
    compute_dtype: str = "float16"  # or bfloat16
    cache_dtype: str = "auto"  # auto: the compute dtype; or float8_e4m3


def stored_dtype(shape: AttentionShape) -> str:
    """The cache's element type by name."""
    return shape.compute_dtype if shape.cache_dtype == "auto" else shape.cache_dtype


@dataclass(frozen=True)
class Tiles:
    """How paged_attention cuts one shape. ``block_m`` rows are ``block_tokens`` tokens times the heads of a group."""

    block_m: int
    block_n: int  # positions of the context
    block_tokens: int
    value_parts: int
    num_warps: int
    num_stages: int


def tiles_for(shape: AttentionShape) -> Tiles:
    """The same on every SM: what fits into 99 KB of shared memory and, but for some of the state between splits, into
    255 registers (docs/kernel_resources.json)."""
    wide = shape.head_dim > 128
    return Tiles(
        block_m=64,
        block_n=32 if wide else 64,
        block_tokens=64 // (shape.num_heads // shape.num_kv_heads),
        value_parts=2 if wide else 1,
        num_warps=4,
        num_stages=2,
    )


def next_power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
