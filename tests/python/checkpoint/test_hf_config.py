from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from trtc.blocks.rope import rope_cos_sin
from trtc.checkpoint.hf_config import READERS, model_config_from_hf
from trtc.errors import ConfigError, RecipeError

LLAMA_32 = {  # the fields that meta-llama/Llama-3.2-1B publishes
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
GEMMA_3 = {  # as published before transformers 5: rope fields at the top, the window pattern as a number
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
PHI_4_MINI = {
    "model_type": "phi3",
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "embd_pdrop": 0.0,
    "full_attn_mod": 1,
    "hidden_act": "silu",
    "hidden_size": 96,
    "interpolate_factor": 1,
    "intermediate_size": 96,
    "lm_head_bias": False,
    "max_position_embeddings": 131072,
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 6, "long_factor": [2.0] * 6},
    "rope_theta": 10000.0,
    "sliding_window": 262144,
    "vocab_size": 200,
}
QWEN_25 = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GPT_2 = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "layer_norm_epsilon": 1e-05,
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def test_llama_with_rope_scaling_of_older_transformers() -> None:
    config = model_config_from_hf(LLAMA_32)
    assert (config.num_layers, config.num_kv_heads, config.head_dim, config.vocab_size) == (16, 8, 64, 128256)
    assert config.eos_token_ids == (128001, 128008, 128009) and config.tie_word_embeddings
    assert config.attention_scale == 64**-0.5 and config.layer_windows == (None,) * 16
    rope = config.layer_ropes[0]
    assert rope is not None and (rope.kind, rope.theta, rope.factor) == ("llama3", 5e5, 32.0)
    assert rope.original_max_position == 8192 and rope.rotary_dim == 64


def test_rope_parameters_of_transformers_5_mean_the_same() -> None:
    new = {key: value for key, value in LLAMA_32.items() if key not in ("rope_scaling", "rope_theta")}
    new["rope_parameters"] = {**LLAMA_32["rope_scaling"], "rope_theta": 500000.0}
    assert model_config_from_hf(new) == model_config_from_hf(LLAMA_32)


def test_gemma_3_has_a_rope_per_layer_type_and_five_windows_to_one_full_layer() -> None:
    config = model_config_from_hf(GEMMA_3)
    assert config.layer_windows == tuple(None if layer % 6 == 5 else 512 for layer in range(26))
    local, full = config.layer_ropes[0], config.layer_ropes[5]
    assert local is not None and full is not None
    assert (local.kind, local.theta) == ("default", 1e4)
    assert (full.kind, full.theta, full.factor) == ("linear", 1e6, 8.0)
    assert config.tie_word_embeddings and config.qk_norm
    assert config.embedding_scale == math.sqrt(1152) and config.attention_scale == 1 / 16
    assert config.attention_softcap is None and config.logit_softcap is None


def test_phi_4_mini_rotates_three_quarters_with_longrope() -> None:
    config = model_config_from_hf(PHI_4_MINI)
    rope = config.layer_ropes[0]
    assert rope is not None and (rope.kind, rope.rotary_dim, rope.original_max_position) == ("longrope", 12, 4096)
    assert rope.factor == 32.0 and rope.long_factor == (2.0,) * 6
    assert config.layer_windows == (262144, 262144)


def test_qwen_2_keeps_full_attention_while_its_window_is_switched_off() -> None:
    config = model_config_from_hf(QWEN_25)
    assert config.layer_windows == (None,) * 24 and config.qkv_bias and not config.attention_out_bias
    sliding = model_config_from_hf({**QWEN_25, "use_sliding_window": True})
    assert sliding.layer_windows == (None,) * 21 + (32768,) * 3


def test_gpt_2_names_are_resolved() -> None:
    config = model_config_from_hf(GPT_2)
    assert (config.hidden_size, config.intermediate_size, config.head_dim, config.num_kv_heads) == (768, 3072, 64, 12)
    assert config.norm == "layer" and config.activation == "gelu_tanh" and config.tie_word_embeddings
    assert config.learned_positions and config.layer_ropes == (None,) * 12 and config.eos_token_ids == (50256,)


def test_qwen_3_without_head_dim_has_128_channels_as_transformers_defaults() -> None:
    config = {**QWEN_25, "model_type": "qwen3"}
    assert model_config_from_hf(config).head_dim == 128


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (
            LLAMA_32,
            {"model_type": "mamba"},
            r"model_type 'mamba' is not supported; supported: gemma3_text, gpt2, llama",
        ),
        (LLAMA_32, {"model_type": None}, "model_type None is not supported"),
        (LLAMA_32, {"num_local_experts": 8}, "field 'num_local_experts' = 8 is not handled"),
        (LLAMA_32, {"alibi": True}, "field 'alibi' = True is not handled"),
        (LLAMA_32, {"quantization_config": {"quant_method": "gptq"}}, r"'quantization_config' \(gptq\)"),
        (LLAMA_32, {"vocab_size": None}, "field 'vocab_size' is missing"),
        (LLAMA_32, {"num_hidden_layers": 2**40}, "'num_hidden_layers' is 1099511627776, expected .* up to 1024"),
        (GPT_2, {"n_layer": 2**40}, "field 'n_layer' is 1099511627776, expected a positive integer up to 1024"),
        (LLAMA_32, {"quantization_config": "gptq"}, "pre-quantized checkpoints are not supported"),
        (LLAMA_32, {"eos_token_id": ["</s>"]}, "field 'eos_token_id' .* expected a token id or a list of them"),
        (LLAMA_32, {"bos_token_id": [1]}, r"field 'bos_token_id' is \[1\], expected a token id"),
        (LLAMA_32, {"hidden_size": "2048"}, "field 'hidden_size' is '2048', expected a positive integer"),
        (LLAMA_32, {"num_key_value_heads": 5}, "expected a divisor of num_attention_heads 32"),
        (LLAMA_32, {"hidden_act": "relu2"}, "field 'hidden_act' is 'relu2', expected one of silu"),
        (LLAMA_32, {"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is not supported"),
        (LLAMA_32, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "field 'rope_type' is 'dynamic'"),
        (LLAMA_32, {"rope_scaling": {"rope_type": "linear"}}, "rope_parameters: field 'factor' is missing"),
        (LLAMA_32, {"rope_scaling": {"mrope_section": [8, 8]}}, r"rope_parameters: field 'mrope_section' = \[8, 8\]"),
        (LLAMA_32, {"tie_word_embeddings": "yes"}, "field 'tie_word_embeddings' is 'yes', expected true or false"),
        (LLAMA_32, {"rms_norm_eps": float("nan")}, "field 'rms_norm_eps' is nan, expected a number"),
        (GEMMA_3, {"use_bidirectional_attention": True}, "field 'use_bidirectional_attention' = True"),
        (GEMMA_3, {"layer_types": ["full_attention"]}, "field 'layer_types' .* expected 26 entries"),
        (GEMMA_3, {"sliding_window": None}, "field 'sliding_window' is missing"),
        (QWEN_25, {"layer_types": ["sliding_attention"] * 24}, "no sliding layer while use_sliding_window is off"),
        (PHI_4_MINI, {"full_attn_mod": 2}, "field 'full_attn_mod' is 2, expected 1"),
        (PHI_4_MINI, {"partial_rotary_factor": 0.3}, "expected an even number within|list of"),
        (PHI_4_MINI, {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "expected a list of 6 positive"),
        (GPT_2, {"scale_attn_by_inverse_layer_idx": True}, "field 'scale_attn_by_inverse_layer_idx' = True"),
        (GPT_2, {"n_head": 7}, "hidden size 768 is not a multiple of 7"),
    ],
)
def test_a_field_that_changes_the_mathematics_is_an_error_naming_it(
    base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        model_config_from_hf({**base, **changes})


HOSTILE: tuple[Any, ...] = (
    *(2**31, 2**40, 10**400, -1, 0, 1, 2, 1.5, 1e308, -1e308, float("inf"), float("nan"), 1e-320),
    *(True, False, "x", "", [], [None], [True], [[1]], [{}], ["x"], [2**40], ["full_attention"]),
    *({}, {"a": 1}, {"full_attention": 3}, {"full_attention": {"rope_type": "yarn"}}, {"rope_theta": 10**400}),
    *({"rope_type": []}, {"rope_type": {}}, {"type": {}}, {"rope_theta": 0.5}, {"rope_theta": 1}),
    {"rope_type": "linear", "factor": 1e-37},
    {"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 1},
    {"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [0.0] * 6},
    *({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": n} for n in (0, 1, -3, "a", 2**70)),
    *({"rope_type": "yarn", "factor": 2, name: -14} for name in ("beta_fast", "beta_slow", "mscale", "truncate")),
)
BASES = (LLAMA_32, GEMMA_3, PHI_4_MINI, QWEN_25, GPT_2)
EVERY_FIELD = sorted({name for base in BASES for name in base} | {"quantization_config", "rope_parameters", "n_inner"})


@pytest.mark.parametrize("field", EVERY_FIELD)
def test_whatever_a_field_holds_gives_a_sane_model_or_a_typed_error(field: str) -> None:
    for base, value in itertools.product(BASES, HOSTILE):
        try:
            config = model_config_from_hf({**base, field: value})
            ropes = [rope_cos_sin(rope, 16) for rope in {*config.layer_ropes} if rope is not None]
        except (ConfigError, RecipeError) as error:
            assert len(str(error)) < 2000
            continue
        tokens = (config.bos_token_id, config.pad_token_id, *config.eos_token_ids)
        assert all(token is None or (type(token) is int and 0 <= token < 2**31) for token in tokens)
        assert config.num_layers <= 1024 and config.vocab_size * config.hidden_size < 2**63
        assert all(np.isfinite(table).all() for tables in ropes for table in tables)


def test_minus_one_stands_for_no_token() -> None:
    config = model_config_from_hf({**LLAMA_32, "pad_token_id": -1, "eos_token_id": [-1, 2]})
    assert config.pad_token_id is None and config.eos_token_ids == (2,)


def test_unknown_fields_that_are_off_pass() -> None:
    assert model_config_from_hf({**LLAMA_32, "alibi": False, "num_experts": None}) == model_config_from_hf(LLAMA_32)


@pytest.mark.parametrize("model_type", sorted(READERS))
def test_the_defaults_of_transformers_resolve_to_the_same_sizes(model_type: str) -> None:
    from transformers import AutoConfig

    theirs = AutoConfig.for_model(model_type)
    ours = model_config_from_hf(theirs.to_dict())
    assert ours.vocab_size == theirs.vocab_size and ours.num_layers == theirs.num_hidden_layers
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
