"""Tiny models whose heads the attention kernels are written for, with weights that float16 holds exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.tiny_models import save_tiny_model

GPT2_SIZES = {"n_embd": 128, "n_head": 2}
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 128},
    "mistral": {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 7},
    "qwen2": {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2},
    "qwen3": {"head_dim": 64},
    "gemma3_text": {"head_dim": 64, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "phi3": {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "gpt2": GPT2_SIZES,
}


def save_wide_model(model_type: str, directory: Path, **overrides: Any) -> Path:
    """``save_tiny_model`` with heads of 64 channels."""
    save_tiny_model(model_type, directory, **{**SIZES[model_type], **overrides})
    path = directory / "model.safetensors"
    tensors = {name: value.astype(np.float16).astype(np.float32) for name, value in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})
    return directory
