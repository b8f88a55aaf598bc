"""The models that every implementation of a step must agree with transformers on, in float32."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ParityCase:
    """A tiny model: its architecture, what differs from ``tests.tiny_models.CONFIGS``, and the engine's limits."""

    name: str
    model_type: str
    overrides: dict[str, Any] = field(default_factory=dict)
    max_seq_len: int = 128
    prompt_lengths: tuple[int, ...] = (21, 5, 1, 34)  # longer and shorter than the windows, odd in KV blocks


def _scaled(model_type: str, name: str, max_position: int = 128, **rope: Any) -> ParityCase:
    parameters = {"rope_theta": 10000.0, **rope}
    return ParityCase(name, model_type, {"rope_parameters": parameters, "max_position_embeddings": max_position})


def _longrope(name: str, max_seq_len: int, lengths: tuple[int, ...], **rope: Any) -> ParityCase:
    """Phi-3 with 12 of 16 channels rotating; sequences lie wholly on one side of the switch at 16 positions."""
    parameters = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
        "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
        **rope,
    }
    overrides = {"rope_parameters": parameters, "original_max_position_embeddings": 16}
    return ParityCase(name, "phi3", overrides, max_seq_len, lengths)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}

CASES: tuple[ParityCase, ...] = (
    ParityCase("llama", "llama"),
    ParityCase("llama-tied", "llama", {"tie_word_embeddings": True}),
    ParityCase("llama-biases", "llama", {"attention_bias": True, "mlp_bias": True}),
    ParityCase("llama-head-dim", "llama", {"head_dim": 24}),
    ParityCase("llama-multi-query", "llama", {"num_key_value_heads": 1}),
    ParityCase("llama-no-gqa", "llama", {"num_key_value_heads": 4}),
    ParityCase("llama-gelu", "llama", {"hidden_act": "gelu"}),
    _scaled("llama", "llama-rope-linear", rope_type="linear", factor=4.0),
    _scaled("llama", "llama-rope-llama3", **LLAMA3),
    _scaled("llama", "llama-rope-yarn", **YARN),
    _scaled("llama", "llama-rope-yarn-mscale", mscale=0.8, mscale_all_dim=0.4, truncate=False, **YARN),
    _scaled("llama", "llama-rope-yarn-attention-factor", attention_factor=1.3, beta_fast=16, beta_slow=2, **YARN),
    ParityCase("mistral", "mistral"),
    ParityCase("mistral-window", "mistral", {"sliding_window": 7}),
    ParityCase("qwen2", "qwen2"),
    ParityCase("qwen2-window", "qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    ParityCase("qwen3", "qwen3"),
    ParityCase("qwen3-tied-biases", "qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
    ParityCase("gemma3", "gemma3_text"),
    ParityCase("gemma3-softcaps", "gemma3_text", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}),
    ParityCase(
        "gemma3-rope-linear-global",
        "gemma3_text",
        {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            }
        },
    ),
    ParityCase("phi3", "phi3"),
    ParityCase("phi3-window", "phi3", {"sliding_window": 9}),
    ParityCase("phi3-partial-rotary", "phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    _longrope("phi3-longrope-short", 16, (7, 1, 10)),
    _longrope("phi3-longrope-long", 128, (21, 34, 17)),
    _longrope("phi3-longrope-attention-factor", 128, (21, 34, 17), attention_factor=1.25),
    ParityCase("gpt2", "gpt2"),
    ParityCase("gpt2-untied-unscaled", "gpt2", {"tie_word_embeddings": False, "scale_attn_weights": False}),
    ParityCase("gpt2-inner", "gpt2", {"n_inner": 80, "activation_function": "gelu"}),
)
