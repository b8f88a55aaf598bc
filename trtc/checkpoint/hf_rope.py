"""Rotary settings of ``config.json``: ``rope_parameters`` (transformers 5), or ``rope_theta`` and ``rope_scaling``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtc.checkpoint.hf_fields import Fields
from trtc.checkpoint.model_config import RopeConfig, RopeKind
from trtc.errors import ConfigError

KINDS: tuple[RopeKind, ...] = ("default", "linear", "llama3", "yarn", "longrope")
_NAMES: dict[str, RopeKind] = {**{kind: kind for kind in KINDS}, "su": "longrope"}  # su: Phi 3's first files


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
    old_name = fields.choice("type", _NAMES, "default")
    kind = _NAMES[fields.choice("rope_type", _NAMES, old_name)]
    theta = fields.positive("rope_theta", theta)
    if theta <= 1:
        raise fields.wrong("rope_theta", theta, "a number above 1")
    rotary_dim = int(head_dim * fields.positive("partial_rotary_factor", partial_rotary_factor))
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ConfigError(f"{where}: {rotary_dim} of {head_dim} channels would rotate, expected an even number within")
    nested_original = fields.optional_size("original_max_position_embeddings")
    scaling: dict[str, Any] = {}
    if kind in ("llama3", "yarn", "longrope"):
        scaling["original_max_position"] = original_max_position or nested_original or max_position
        if scaling["original_max_position"] < 2:
            raise fields.wrong("original_max_position_embeddings", 1, "at least 2")
    if kind in ("linear", "llama3"):
        scaling["factor"] = fields.positive("factor")
    elif kind in ("yarn", "longrope"):
        scaling["factor"] = fields.positive("factor", max_position / scaling["original_max_position"])
        scaling["attention_factor"] = fields.optional_positive("attention_factor")
    if kind == "llama3":
        scaling["low_freq_factor"] = fields.positive("low_freq_factor")
        scaling["high_freq_factor"] = fields.positive("high_freq_factor")
        if scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
            raise fields.wrong("high_freq_factor", scaling["high_freq_factor"], "a number above low_freq_factor")
    elif kind == "yarn":
        scaling["beta_fast"] = fields.positive_or("beta_fast", 32.0)
        scaling["beta_slow"] = fields.positive_or("beta_slow", 1.0)
        scaling["truncate"] = fields.flag("truncate", True)
        scaling["mscale"] = fields.positive_or("mscale", 0.0)
        scaling["mscale_all_dim"] = fields.positive_or("mscale_all_dim", 0.0)
    elif kind == "longrope":
        scaling["short_factor"] = fields.positives("short_factor", rotary_dim // 2)
        scaling["long_factor"] = fields.positives("long_factor", rotary_dim // 2)
    fields.finish()
    return RopeConfig(theta=theta, rotary_dim=rotary_dim, kind=kind, **scaling)
