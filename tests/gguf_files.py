"""GGUF files made the way llama.cpp's convert_hf_to_gguf.py makes them, from tiny transformers models.

Names come from the gguf package's own tensor map, not from the reader under test.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "gpt2": "gpt2",
}


def write_model_gguf(model: PreTrainedModel, path: Path, **extra_metadata: Any) -> Path:
    """Write ``model`` in float32. ``extra_metadata`` gives further integer or float keys, with "__" for a dot."""
    model_type = model.config.model_type
    architecture = ARCHITECTURES[model_type]
    writer = gguf.GGUFWriter(path, architecture)
    _write_config(writer, model.config)
    for key, value in extra_metadata.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        writer.add_float32(name, value) if isinstance(value, float) else writer.add_uint32(name, value)
    write_byte_tokenizer(writer, model.config.vocab_size)
    for name, values in _tensors(model):
        writer.add_tensor(name, values)
    return finish(writer)


def write_byte_tokenizer(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    """A byte-level vocabulary with one merge, padded to ``vocab_size``."""
    from tests.tiny_models import byte_characters

    tokens = [*byte_characters(), "<s>", "</s>", "ab"]
    tokens = (tokens + [f"[PAD{i}]" for i in range(vocab_size)])[:vocab_size]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in tokens])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)


def finish(writer: gguf.GGUFWriter) -> Path:
    """Write everything added to ``writer``. Returns the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(writer.path)


def permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's LlamaModel.permute."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def _tensors(model: PreTrainedModel) -> list[tuple[str, np.ndarray]]:
    config, model_type = model.config, model.config.model_type
    names = gguf.get_tensor_name_map(
        next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHITECTURES[model_type]),
        config.num_hidden_layers,
    )
    tensors = []
    for hf_name, tensor in model.state_dict().items():
        stem, kind = hf_name.rsplit(".", 1)
        tied = hf_name == "lm_head.weight" and config.tie_word_embeddings
        if tied and model_type != "gpt2":  # llama.cpp repeats GPT-2's tied matrix
            continue
        values = tensor.numpy()
        if model_type == "llama" and stem.endswith(("q_proj", "k_proj")):
            values = permute(values, config.num_attention_heads if "q_proj" in stem else config.num_key_value_heads)
        if model_type == "gemma3_text" and hf_name.endswith("norm.weight"):
            values = values + 1
        if model_type == "gpt2" and kind == "weight" and stem.endswith(("c_attn", "c_proj", "c_fc")):
            values = values.T
        tensors.append((f"{names.get_name(stem)}.{kind}", np.ascontiguousarray(values)))
    return tensors


def _write_config(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if config.model_type in ("qwen3", "gemma3_text"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    else:
        writer.add_rope_dimension_count(head_dim)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_freq_base(1e6)
    else:
        writer.add_rope_freq_base(10000.0)
