"""What the kernels are compiled for, and the tile sizes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIMS = (64, 80, 96, 128, 256)
BLOCK_SIZES = (16, 32, 64, 128)
MAX_GROUP = 8  # query heads that share one KV head

SPLIT = 512
"""Positions of the context that one program of a split launch walks. Part of the result's bits: fixed, never tuned per launch."""


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

    @property
    def group(self) -> int:
        """Query heads for each KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def stored_dtype(self) -> str:
        """The cache's element type by name."""
        return self.compute_dtype if self.cache_dtype == "auto" else self.cache_dtype


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
    """The same on every SM: what fits 255 registers without spilling and 99 KB of shared memory."""
    wide = shape.head_dim > 128
    return Tiles(
        block_m=64,
        block_n=32 if wide else 64,
        block_tokens=64 // shape.group,
        value_parts=2 if wide else 1,
        num_warps=4,
        num_stages=2,
    )


def next_power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
