"""Rotary tables against transformers' own, at positions far beyond what the parity models reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trtc.blocks.rope import rope_cos_sin, rope_frequencies
from trtc.checkpoint.hf_config import model_config_from_hf

POSITIONS = 40_000


def transformers_cos_sin(model_type: str, **fields: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """cos, sin float32 [POSITIONS, rotary_dim / 2] by the rotary module of transformers, and its config."""
    import torch
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    config = AutoConfig.for_model(model_type, hidden_size=256, num_attention_heads=4, pad_token_id=0, **fields)
    module = {"llama": LlamaRotaryEmbedding, "phi3": Phi3RotaryEmbedding}[model_type](config)
    cos, sin = module(torch.zeros(1), torch.arange(POSITIONS)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].numpy(), sin[0, :, :half].numpy(), config.to_dict()


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 500000.0},
        {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_llama_tables_agree_with_transformers(rope: dict[str, Any]) -> None:
    cos, sin, config = transformers_cos_sin("llama", rope_parameters=rope, max_position_embeddings=131072)
    resolved = model_config_from_hf(config).layer_ropes[0]
    assert resolved is not None and resolved.kind == rope["rope_type"]
    got_cos, got_sin = rope_cos_sin(resolved, POSITIONS)
    assert got_cos.dtype == got_sin.dtype == np.float32
    tolerance = POSITIONS * np.finfo(np.float32).eps  # angles are float32: an ulp at the last position
    np.testing.assert_allclose(got_cos, cos, atol=tolerance, rtol=0)
    np.testing.assert_allclose(got_sin, sin, atol=tolerance, rtol=0)


def test_longrope_takes_the_long_factors_when_the_engine_is_longer_than_the_original_context() -> None:
    short, long = [1.0 + k / 50 for k in range(24)], [1.0 + k for k in range(24)]
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": short,
        "long_factor": long,
    }
    cos, _, config = transformers_cos_sin(
        "phi3", rope_parameters=rope, max_position_embeddings=131072, original_max_position_embeddings=4096
    )
    resolved = model_config_from_hf(config).layer_ropes[0]
    assert resolved is not None
    got, _ = rope_cos_sin(resolved, POSITIONS)
    np.testing.assert_allclose(got, cos, atol=POSITIONS * np.finfo(np.float32).eps, rtol=0)
    at_limit, _ = rope_frequencies(resolved, 4096)
    beyond, _ = rope_frequencies(resolved, 4097)
    np.testing.assert_allclose(at_limit / beyond, np.array(long) / np.array(short), rtol=1e-6)
