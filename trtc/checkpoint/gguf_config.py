"""GGUF metadata to the dict that Hugging Face's config.json would hold.

A metadata key of the architecture that is not understood here may change the mathematics, so it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trtc.checkpoint.tensor_handle import Array
from trtc.errors import CheckpointError

_WITHOUT_EFFECT = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "attention.value_length")
# Gemma 3 files do not say these; llama.cpp has them in its code too.
_GEMMA3_PATTERN, _GEMMA3_LOCAL_THETA, _GEMMA3_27B_LAYERS = 6, 10000.0, 62


class Keys:
    """The metadata of one architecture; remembers what was asked for."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._prefix = f"{architecture}."
        self._metadata = metadata
        self._asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return self._metadata.get(self._prefix + key, default)

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer. Raises CheckpointError when it is missing or something else."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise CheckpointError(f"GGUF metadata {self._prefix}{key} is {value!r}, expected a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive, finite number. Raises CheckpointError when it is missing or something else."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise CheckpointError(f"GGUF metadata {self._prefix}{key} is {value!r}, expected a positive number")
        return float(value)

    def finish(self) -> None:
        """Raises CheckpointError for a key that was not asked for, unless its value switches the thing off."""
        for name, value in self._metadata.items():
            key = name.removeprefix(self._prefix)
            if key == name or key in self._asked or key in _WITHOUT_EFFECT or value in (0, False, "", []):
                continue
            raise CheckpointError(f"GGUF metadata {name} = {value!r} is not supported; use the Hugging Face checkpoint")


def config_from_gguf(
    metadata: Mapping[str, Any], architecture: str, tensor_names: frozenset[str], factors: Mapping[str, Array]
) -> dict[str, Any]:
    """The config.json of a GGUF file. ``tensor_names`` are the file's own; ``factors`` holds its rotary factor tensors.

    Raises CheckpointError when a key is missing, malformed or not understood.
    """
    keys = Keys(metadata, architecture)
    if keys.size("block_count") > len(tensor_names):
        raise CheckpointError(
            f"GGUF metadata {architecture}.block_count exceeds the {len(tensor_names)} tensors of the file"
        )
    config = _BUILDERS[architecture](keys, tensor_names, factors)
    config["vocab_size"] = _vocab_size(metadata)
    config["tie_word_embeddings"] = "output.weight" not in tensor_names
    for hf_name, key in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")):
        if (token := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            config[hf_name] = token
    keys.finish()
    return config


def _vocab_size(metadata: Mapping[str, Any]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise CheckpointError("GGUF metadata tokenizer.ggml.tokens is missing, so the vocabulary is unknown")
    return len(tokens)


def _decoder(keys: Keys) -> dict[str, Any]:
    """What the RMSNorm decoders share."""
    heads, hidden = keys.size("attention.head_count"), keys.size("embedding_length")
    head_dim = keys.size("attention.key_length", hidden // heads)
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.size("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        **_rope_scaling(keys),
    }


def _rope_scaling(keys: Keys) -> dict[str, Any]:
    kind = keys.get("rope.scaling.type", "none")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    original = keys.get("rope.scaling.original_context_length")
    attention_factor = keys.get("rope.scaling.attn_factor")
    if kind == "linear" and factor not in (None, 0, 1):
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    if kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        if attention_factor not in (None, 1.0):
            scaling["attention_factor"] = attention_factor
        return {"rope_scaling": scaling}
    if kind not in ("none", "linear", "longrope"):
        raise CheckpointError(f"GGUF metadata rope.scaling.type is {kind!r}, expected none, linear, yarn or longrope")
    return {}


def _require_full_rotary(keys: Keys, config: dict[str, Any]) -> None:
    rotary = keys.size("rope.dimension_count", config["head_dim"])
    if rotary != config["head_dim"]:
        raise CheckpointError(
            f"GGUF metadata rope.dimension_count is {rotary}, expected the head size {config['head_dim']}"
        )


def _llama(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_decoder(keys)}
    _require_full_rotary(keys, config)
    config["attention_bias"] = "blk.0.attn_q.bias" in tensor_names
    config["mlp_bias"] = "blk.0.ffn_gate.bias" in tensor_names
    if "rope_freqs.weight" in factors:
        config["rope_scaling"] = _scaling_of_factors(factors["rope_freqs.weight"], config)
    return config


def _scaling_of_factors(factors: Array, config: dict[str, Any]) -> dict[str, Any]:
    """The rope_scaling that a table of frequency divisors came from: Llama 3's rule where it fits, else longrope with
    the table itself (which scales each frequency by just these numbers)."""
    values = factors.astype(np.float64)
    scaling = {
        "rope_type": "llama3",
        "factor": float(values.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if values.shape == (config["head_dim"] // 2,) and np.allclose(values, _llama3_factors(scaling, config), rtol=1e-4):
        return scaling
    table = [float(str(value)) for value in factors.astype(np.float32)]
    original = config["max_position_embeddings"]
    return {
        "rope_type": "longrope",
        "short_factor": table,
        "long_factor": table,
        "attention_factor": 1.0,
        "original_max_position_embeddings": original,
    }


def _llama3_factors(scaling: dict[str, Any], config: dict[str, Any]) -> Array:
    """What each frequency is divided by (transformers ``_compute_llama3_parameters``): float64 [head_dim / 2]."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    exponents = np.arange(0, config["head_dim"], 2) / config["head_dim"]
    turns = scaling["original_max_position_embeddings"] * config["rope_theta"] ** -exponents / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    factors: Array = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    return factors


def _qwen2(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_decoder(keys)}
    _require_full_rotary(keys, config)
    return config | {"use_sliding_window": False}


def _qwen3(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_decoder(keys)}
    _require_full_rotary(keys, config)
    return config | {"use_sliding_window": False, "attention_bias": "blk.0.attn_q.bias" in tensor_names}


def _gemma3(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    config = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], **_decoder(keys)}
    _require_full_rotary(keys, config)
    del config["hidden_act"]
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    pattern = keys.get("attention.sliding_window_pattern", _GEMMA3_PATTERN)
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": keys.number("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": keys.number("rope.freq_base_swa", _GEMMA3_LOCAL_THETA),
        "sliding_window": keys.size("attention.sliding_window"),
        "layer_types": [
            "full_attention" if full else "sliding_attention" for full in _full_layers(pattern, int(layers))
        ],
        "query_pre_attn_scalar": config["hidden_size"] // heads if layers == _GEMMA3_27B_LAYERS else config["head_dim"],
        "attn_logit_softcapping": keys.get("attn_logit_softcapping"),
        "final_logit_softcapping": keys.get("final_logit_softcapping"),
        "attention_bias": False,
    }


def _full_layers(pattern: object, layers: int) -> list[bool]:
    """Which layers attend to everything: every ``pattern``-th one, or the layers a list marks as not sliding."""
    if isinstance(pattern, list) and len(pattern) == layers:
        return [not sliding for sliding in pattern]
    if isinstance(pattern, int) and pattern > 0:
        return [(layer + 1) % pattern == 0 for layer in range(layers)]
    raise CheckpointError(f"GGUF metadata gemma3.attention.sliding_window_pattern is {pattern!r}, expected a count")


def _phi3(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    config = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], **_decoder(keys)}
    head_dim = config.pop("head_dim")
    rotary = keys.size("rope.dimension_count", head_dim)
    if rotary != head_dim:
        config["partial_rotary_factor"] = rotary / head_dim
    config["sliding_window"] = keys.get("attention.sliding_window") or None
    original = keys.get("rope.scaling.original_context_length")
    if original is not None:
        config["original_max_position_embeddings"] = original
    if factors:
        config["rope_scaling"] = {
            "rope_type": "longrope",
            "short_factor": _factor_table(factors, "rope_factors_short.weight"),
            "long_factor": _factor_table(factors, "rope_factors_long.weight"),
        }
        if (attention_factor := keys.get("rope.scaling.attn_factor")) is not None:
            config["rope_scaling"]["attention_factor"] = attention_factor
    return config


def _factor_table(factors: Mapping[str, Array], name: str) -> list[float]:
    if name not in factors:
        raise CheckpointError(f"the GGUF file has only one of phi3's two rotary factor tensors; {name} is missing")
    return [float(str(value)) for value in factors[name].astype(np.float32)]


def _gpt2(keys: Keys, tensor_names: frozenset[str], factors: Mapping[str, Array]) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "n_positions": keys.size("context_length"),
        "n_embd": keys.size("embedding_length"),
        "n_inner": keys.size("feed_forward_length"),
        "n_layer": keys.size("block_count"),
        "n_head": keys.size("attention.head_count"),
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
    }


_BUILDERS: dict[str, Callable[[Keys, frozenset[str], Mapping[str, Array]], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "gpt2": _gpt2,
}
