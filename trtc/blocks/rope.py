"""Rotary position embedding (Su et al., https://arxiv.org/abs/2104.09864) and its scaled kinds.

Frequencies follow transformers' ``modeling_rope_utils`` in float32, step by step, so that angles agree at large
positions too. Scaling needs no operator of its own: it only changes the tables.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from trtc.blocks.linear import columns
from trtc.checkpoint.model_config import ModelConfig, RopeConfig
from trtc.errors import RecipeError
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder

Array = np.ndarray[Any, Any]


class RopeTables(NamedTuple):
    """cos and sin float [positions, rotary_dim / 2] of one rotary configuration."""

    cos: ir.Value
    sin: ir.Value


def layer_rope_tables(g: GraphBuilder, cfg: ModelConfig) -> list[RopeTables | None]:
    """The tables of each layer; layers of equal configuration share them."""
    tables: dict[RopeConfig, RopeTables] = {}
    for index, rope in enumerate(dict.fromkeys(cfg.layer_ropes)):
        if rope is not None:
            cos, sin = rope_cos_sin(rope, g.max_seq_len)
            tables[rope] = RopeTables(g.constant(cos, f"rope.{index}.cos"), g.constant(sin, f"rope.{index}.sin"))
    return [None if rope is None else tables[rope] for rope in cfg.layer_ropes]


def rotate(g: GraphBuilder, x: ir.Value, tables: RopeTables, head_dim: int, name: str) -> ir.Value:
    """x float [tokens, heads * head_dim] -> same shape, rotated by each row's position."""
    return g.op(
        "RotaryEmbedding",
        x,
        tables.cos,
        tables.sin,
        g.position_ids,
        domain=ops.DOMAIN,
        num_heads=columns(x) // head_dim,
        rotary_dim=2 * columns(tables.cos),
        name=name,
    )


def rope_cos_sin(rope: RopeConfig, positions: int) -> tuple[Array, Array]:
    """cos and sin float32 [positions, rotary_dim / 2], already times the attention factor of yarn and longrope.

    longrope has one set of factors for contexts up to ``original_max_position`` and one for longer ones. transformers
    switches as a sequence grows, which makes cached keys disagree with new ones; an engine decides once, by
    ``positions``, its maximum sequence length.
    """
    with np.errstate(all="ignore"):
        frequencies, attention_factor = rope_frequencies(rope, positions)
    if not np.isfinite(frequencies).all():
        raise RecipeError(f"the rotary settings {rope} give frequencies that are not finite; check config.json")
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies[None, :]
    factor = np.float32(attention_factor)
    return np.cos(angles) * factor, np.sin(angles) * factor


def rope_frequencies(rope: RopeConfig, positions: int) -> tuple[Array, float]:
    """Radians per position of each pair, float32 [rotary_dim / 2], and the factor on cos and sin."""
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float32) / np.float32(rope.rotary_dim)
    wavelength = np.float32(rope.theta) ** exponents  # over 2 pi, in positions
    plain = (np.float32(1) / wavelength).astype(np.float32)
    if rope.kind == "linear":
        return plain / np.float32(rope.factor), 1.0
    if rope.kind == "llama3":
        return _llama3(rope, plain), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, wavelength), _yarn_attention_factor(rope)
    if rope.kind == "longrope":
        long_context = positions > rope.original_max_position
        factors = np.array(rope.long_factor if long_context else rope.short_factor, np.float32)
        return np.float32(1) / (factors * wavelength), _longrope_attention_factor(rope)
    return plain, 1.0


def _llama3(rope: RopeConfig, plain: Array) -> Array:
    """Llama 3.1: long waves slow down by ``factor``, short ones stay, those between are blended."""
    original = rope.original_max_position
    waves = 2 * math.pi / plain  # positions per turn
    slowed = np.where(waves > original / rope.low_freq_factor, plain / rope.factor, plain)
    blend = (original / waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    between = (waves >= original / rope.high_freq_factor) & (waves <= original / rope.low_freq_factor)
    return np.where(between, (1 - blend) * slowed / rope.factor + blend * slowed, slowed).astype(np.float32)


def _yarn(rope: RopeConfig, wavelength: Array) -> Array:
    """YaRN (Peng et al., https://arxiv.org/abs/2309.00071): interpolate the slow pairs, ramping between two bounds."""

    def pair_with_turns(turns: float) -> float:
        """Index of the pair that turns ``turns`` times within the original context."""
        ratio = rope.original_max_position / (turns * 2 * math.pi)
        return rope.rotary_dim * math.log(ratio) / (2 * math.log(rope.theta))

    low, high = pair_with_turns(rope.beta_fast), pair_with_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(rope.rotary_dim // 2, dtype=np.float32) - low) / (high - low), 0, 1)
    interpolated, extrapolated = 1 / (np.float32(rope.factor) * wavelength), 1 / wavelength
    return np.asarray(interpolated * ramp + extrapolated * (1 - ramp), np.float32)


def _yarn_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def mscale(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


def _longrope_attention_factor(rope: RopeConfig) -> float:
    """LongRoPE (Ding et al., https://arxiv.org/abs/2402.13753)."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_position))
