"""Rotary settings of ``config.json``: ``rope_parameters`` (transformers 5), or ``rope_theta`` and ``rope_scaling``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtc.checkpoint.hf_fields import Fields
from trtc.checkpoint.model_config import RopeConfig
from trtc.errors import ConfigError

KINDS = ("default", "linear", "llama3", "yarn", "longrope")


def rope_from_hf(
    parameters: Mapping[str, Any],
    where: str,
    *,
    theta: float,
    head_dim: int,
    partial_rotary_factor: float,
    max_position: int,
    original_max_position: int | None,
) -> RopeConfig:
    """One ``RopeConfig`` from the parameters of one layer type; the keywords are what applies when they are silent.

    ``original_max_position`` is the top-level field, which wins over the nested one as in transformers.
    """
    fields = Fields(parameters, where)
    old_name = fields.get("type", "default")
    kind = {"su": "longrope"}.get(name := fields.get("rope_type", old_name), name)
    if kind not in KINDS:
        raise fields.wrong("rope_type", kind, f"one of {', '.join(KINDS)}")
    theta = fields.positive("rope_theta", theta)
    rotary_dim = int(head_dim * fields.positive("partial_rotary_factor", partial_rotary_factor))
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ConfigError(f"{where}: {rotary_dim} of {head_dim} channels would rotate, expected an even number within")
    nested_original = fields.get("original_max_position_embeddings")
    scaling: dict[str, Any] = {}
    if kind in ("llama3", "yarn", "longrope"):
        original = original_max_position or nested_original or max_position
        scaling["original_max_position"] = int(original)
    if kind in ("linear", "llama3"):
        scaling["factor"] = fields.positive("factor")
    elif kind in ("yarn", "longrope"):
        scaling["factor"] = fields.positive("factor", max_position / scaling["original_max_position"])
        scaling["attention_factor"] = fields.optional_positive("attention_factor")
    if kind == "llama3":
        scaling["low_freq_factor"] = fields.positive("low_freq_factor")
        scaling["high_freq_factor"] = fields.positive("high_freq_factor")
    elif kind == "yarn":
        scaling["beta_fast"] = fields.number("beta_fast", 0.0) or 32.0
        scaling["beta_slow"] = fields.number("beta_slow", 0.0) or 1.0
        scaling["truncate"] = fields.flag("truncate", True)
        scaling["mscale"] = fields.number("mscale", 0.0)
        scaling["mscale_all_dim"] = fields.number("mscale_all_dim", 0.0)
    elif kind == "longrope":
        scaling["short_factor"] = fields.numbers("short_factor", rotary_dim // 2)
        scaling["long_factor"] = fields.numbers("long_factor", rotary_dim // 2)
    fields.finish()
    return RopeConfig(theta=theta, rotary_dim=rotary_dim, kind=kind, **scaling)
