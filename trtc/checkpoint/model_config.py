"""``ModelConfig``: what a model is, after all aliases of ``config.json`` are resolved.

Made by :func:`trtc.checkpoint.hf_config.model_config_from_hf` alone. Recipes and blocks read it; nothing changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh"]
RopeKind = Literal["default", "linear", "llama3", "yarn", "longrope"]


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding of one layer (Su et al., https://arxiv.org/abs/2104.09864).

    The scaled kinds follow transformers' ``modeling_rope_utils``. ``rotary_dim`` is the number of leading
    channels of each head that rotate (``head_dim`` times the partial rotary factor).
    """

    theta: float
    rotary_dim: int
    kind: RopeKind = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    truncate: bool = True  # yarn
    mscale: float = 0.0  # yarn
    mscale_all_dim: float = 0.0  # yarn
    attention_factor: float | None = None  # yarn, longrope: None means the formula's own value
    short_factor: tuple[float, ...] = ()  # longrope
    long_factor: tuple[float, ...] = ()  # longrope


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only model. Sizes count elements; tuples named ``layer_*`` have one entry per layer."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    norm: Literal["rms", "layer"]
    norm_eps: float
    activation: Activation
    gated_mlp: bool
    tie_word_embeddings: bool
    qkv_bias: bool
    attention_out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    attention_scale: float
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    learned_positions: bool = False
    layer_windows: tuple[int | None, ...] = ()  # sliding window in tokens; None attends to everything before
    layer_ropes: tuple[RopeConfig | None, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = field(default=())
    pad_token_id: int | None = None
