"""``config.json`` to :class:`ModelConfig`. Every alias and default of Hugging Face's configurations is resolved here.

A field that is neither read here nor known to leave the mathematics alone is a ConfigError, never a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from trtc.checkpoint.hf_fields import NEUTRAL, NEUTRAL_PATTERN, Fields
from trtc.checkpoint.hf_rope import rope_from_hf
from trtc.checkpoint.model_config import Activation, ModelConfig, RopeConfig
from trtc.errors import ConfigError

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
FULL, SLIDING = "full_attention", "sliding_attention"
# Far beyond any model there is; they bound what a config.json makes us allocate before its tensors have been seen.
MOST_LAYERS, MOST_HEADS, MOST_HEAD_DIM, MOST_CHANNELS, MOST_TOKENS = 1024, 4096, 4096, 2**24, 2**24


def model_config_from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """Resolve a parsed ``config.json``.

    Raises ConfigError naming the field that is missing, wrong, unknown or not supported.
    """
    fields = Fields(config, "config.json")
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in READERS:
        raise ConfigError(
            f"config.json: model_type {model_type!r} is not supported; supported: {', '.join(sorted(READERS))}"
        )
    resolved = READERS[model_type](fields, model_type)
    fields.finish(NEUTRAL | {name for name in config if NEUTRAL_PATTERN.fullmatch(name)})
    return resolved


def _llama(fields: Fields, model_type: str) -> ModelConfig:
    bias = fields.flag("attention_bias", False)
    return _rms_model(
        fields, model_type, qkv_bias=bias, attention_out_bias=bias, mlp_bias=fields.flag("mlp_bias", False)
    )


def _mistral(fields: Fields, model_type: str) -> ModelConfig:
    return _rms_model(fields, model_type, window_all=fields.optional_size("sliding_window"))


def _phi3(fields: Fields, model_type: str) -> ModelConfig:
    for name in ("full_attn_mod", "interpolate_factor"):  # Phi-4-mini writes them; only 1 is what transformers computes
        if fields.get(name, 1) != 1:
            raise fields.wrong(name, fields.get(name), "1")
    return _rms_model(
        fields,
        model_type,
        window_all=fields.optional_size("sliding_window"),
        partial_rotary=True,
        original_max_position=4096,
    )


def _qwen2(fields: Fields, model_type: str) -> ModelConfig:
    return _rms_model(fields, model_type, qkv_bias=True, layer_types=_qwen_layer_types(fields))


def _qwen3(fields: Fields, model_type: str) -> ModelConfig:
    bias = fields.flag("attention_bias", False)
    return _rms_model(
        fields,
        model_type,
        qkv_bias=bias,
        attention_out_bias=bias,
        qk_norm=True,
        head_dim=128,
        layer_types=_qwen_layer_types(fields),
    )


def _gemma3(fields: Fields, model_type: str) -> ModelConfig:
    layers = fields.size("num_hidden_layers", most=MOST_LAYERS)
    pattern = fields.size("sliding_window_pattern", fields.size("_sliding_window_pattern", 6))
    default_types = [FULL if (layer + 1) % pattern == 0 else SLIDING for layer in range(layers)]
    bias = fields.flag("attention_bias", False)
    return _rms_model(
        fields,
        model_type,
        qkv_bias=bias,
        attention_out_bias=bias,
        qk_norm=True,
        head_dim=256,
        tie=True,
        layer_types=_layer_types(fields, default_types),
        rope_per_layer_type=True,
        attention_scale=fields.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=fields.optional_positive("attn_logit_softcapping"),
        logit_softcap=fields.optional_positive("final_logit_softcapping"),
        embedding_scale=math.sqrt(fields.size("hidden_size", most=MOST_CHANNELS)),
    )


def _gpt2(fields: Fields, model_type: str) -> ModelConfig:
    hidden, heads = fields.size("n_embd", most=MOST_CHANNELS), fields.size("n_head", most=MOST_HEADS)
    layers = fields.size("n_layer", most=MOST_LAYERS)
    head_dim = _head_dim(fields, hidden, heads)
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.size("vocab_size", most=MOST_TOKENS),
        hidden_size=hidden,
        intermediate_size=fields.size("n_inner", 4 * hidden, MOST_CHANNELS),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=fields.size("n_positions"),
        norm="layer",
        norm_eps=fields.positive("layer_norm_epsilon", 1e-5),
        activation=_activation(fields, "activation_function", "gelu_new"),
        gated_mlp=False,
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
        qkv_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        qk_norm=False,
        attention_scale=head_dim**-0.5 if fields.flag("scale_attn_weights", True) else 1.0,
        learned_positions=True,
        layer_windows=(None,) * layers,
        layer_ropes=(None,) * layers,
        **_special_tokens(fields),
    )


def _rms_model(
    fields: Fields,
    model_type: str,
    *,
    qkv_bias: bool = False,
    attention_out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    head_dim: int | None = None,
    tie: bool = False,
    window_all: int | None = None,
    layer_types: list[str] | None = None,
    partial_rotary: bool = False,
    original_max_position: int | None = None,
    rope_per_layer_type: bool = False,
    attention_scale: float | None = None,
    **extra: Any,
) -> ModelConfig:
    """What the RMSNorm families share. ``head_dim``, ``tie``, ``original_max_position``: when config.json is silent."""
    hidden = fields.size("hidden_size", most=MOST_CHANNELS)
    heads, layers = (
        fields.size("num_attention_heads", most=MOST_HEADS),
        fields.size("num_hidden_layers", most=MOST_LAYERS),
    )
    kv_heads = fields.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    default_head_dim = head_dim or (_head_dim(fields, hidden, heads) if fields.get("head_dim") is None else 0)
    head_dim = fields.size("head_dim", default_head_dim, MOST_HEAD_DIM)
    types = layer_types or [SLIDING if window_all else FULL] * layers
    ropes = _ropes(fields, head_dim, partial_rotary, original_max_position, rope_per_layer_type)
    window = fields.size("sliding_window") if SLIDING in types else None
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.size("vocab_size", most=MOST_TOKENS),
        hidden_size=hidden,
        intermediate_size=fields.size("intermediate_size", most=MOST_CHANNELS),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=fields.size("max_position_embeddings"),
        norm="rms",
        norm_eps=fields.positive("rms_norm_eps", 1e-6),
        activation=_activation(fields, "hidden_activation" if model_type == "gemma3_text" else "hidden_act", None),
        gated_mlp=True,
        tie_word_embeddings=fields.flag("tie_word_embeddings", tie),
        qkv_bias=qkv_bias,
        attention_out_bias=attention_out_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        attention_scale=attention_scale or head_dim**-0.5,
        layer_windows=tuple(window if kind == SLIDING else None for kind in types),
        layer_ropes=tuple(ropes[kind] for kind in types),
        **_special_tokens(fields),
        **extra,
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise ConfigError(f"{fields.where}: hidden size {hidden} is not a multiple of {heads} attention heads")
    return hidden // heads


def _activation(fields: Fields, name: str, default: str | None) -> Activation:
    return ACTIVATIONS[fields.choice(name, ACTIVATIONS, default)]


def _qwen_layer_types(fields: Fields) -> list[str]:
    """Without ``layer_types``, layers from ``max_window_layers`` on slide, if the window is in use at all."""
    layers, first_sliding = fields.size("num_hidden_layers", most=MOST_LAYERS), fields.get("max_window_layers", 28)
    if not isinstance(first_sliding, int) or first_sliding < 0:
        raise fields.wrong("max_window_layers", first_sliding, "a number of layers")
    window = fields.optional_size("sliding_window")
    in_use = fields.flag("use_sliding_window", False) and window is not None
    default = [SLIDING if in_use and layer >= first_sliding else FULL for layer in range(layers)]
    types = _layer_types(fields, default)
    if SLIDING in types and not in_use:
        raise fields.wrong("layer_types", types, "no sliding layer while use_sliding_window is off")
    return types


def _layer_types(fields: Fields, default: list[str]) -> list[str]:
    """One of FULL and SLIDING for each layer: the field ``layer_types``, or ``default``."""
    types: object = fields.get("layer_types", default)
    if not isinstance(types, list) or len(types) != len(default) or any(kind not in (FULL, SLIDING) for kind in types):
        raise fields.wrong("layer_types", types, f"{len(default)} entries, each {FULL!r} or {SLIDING!r}")
    return types


def _ropes(
    fields: Fields, head_dim: int, partial: bool, default_original: int | None, per_layer_type: bool
) -> dict[str, RopeConfig]:
    """Rotary settings by layer type. ``rope_parameters`` is transformers 5; the others are its predecessors."""
    scaling, parameters = fields.mapping("rope_scaling"), fields.mapping("rope_parameters")
    theta = fields.positive("rope_theta", 1e6 if per_layer_type else 1e4)
    by_type = {FULL: dict(scaling or parameters), SLIDING: dict(scaling or parameters)}
    thetas = {FULL: theta, SLIDING: theta}
    if per_layer_type:
        of_types = Fields(parameters, f"{fields.where}: rope_parameters")
        nested = {kind: of_types.mapping(kind) for kind in (FULL, SLIDING)}
        if unknown := set(parameters) - {FULL, SLIDING}:
            raise ConfigError(
                f"{fields.where}: field 'rope_parameters' has {sorted(unknown)[0]!r}, expected layer types"
            )
        by_type = {FULL: {**nested[FULL], **scaling}, SLIDING: nested[SLIDING]}
        thetas[SLIDING] = fields.positive("rope_local_base_freq", 1e4)
    factor = fields.positive("partial_rotary_factor", 1.0)
    original = fields.optional_size("original_max_position_embeddings") or default_original
    ropes = {
        kind: rope_from_hf(
            values,
            f"{fields.where}: rope_parameters" + (f".{kind}" if per_layer_type else ""),
            theta=thetas[kind],
            head_dim=head_dim,
            partial_rotary_factor=factor,
            max_position=fields.size("max_position_embeddings"),
            original_max_position=original,
        )
        for kind, values in by_type.items()
    }
    if not partial and any(rope.rotary_dim != head_dim for rope in ropes.values()):
        raise ConfigError(f"{fields.where}: field 'partial_rotary_factor' is not supported for this model_type")
    return ropes


def _special_tokens(fields: Fields) -> dict[str, Any]:
    return {
        "bos_token_id": fields.token_id("bos_token_id"),
        "eos_token_ids": fields.token_ids("eos_token_id"),
        "pad_token_id": fields.token_id("pad_token_id"),
    }


READERS: dict[str, Callable[[Fields, str], ModelConfig]] = {
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}
