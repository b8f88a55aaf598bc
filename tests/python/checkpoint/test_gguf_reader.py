"""Every architecture's GGUF file gives the tensors and the configuration of the model it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.gguf_files import ARCHITECTURES, finish, write_byte_tokenizer, write_model_gguf
from tests.tiny_models import tiny_model
from trtc.checkpoint.gguf_config import config_from_gguf
from trtc.checkpoint.hf_config import model_config_from_hf
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.tensor_handle import TensorHandle
from trtc.errors import CheckpointError

# A GGUF states no pad token here, and Gemma 3's pattern of layers is llama.cpp's: five sliding, one full.
GEMMA_SIX_LAYERS = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "query_pre_attn_scalar": 24,
}


def model_of(model_type: str, **overrides: Any) -> Any:
    return tiny_model(model_type, **({**GEMMA_SIX_LAYERS, **overrides} if model_type == "gemma3_text" else overrides))


def assert_same_tensors(tensors: dict[str, TensorHandle], expected: dict[str, np.ndarray]) -> None:
    assert tensors.keys() == expected.keys()
    for name, handle in tensors.items():
        np.testing.assert_allclose(handle.read(), expected[name], rtol=0, atol=2e-7, err_msg=name)


def hf_tensors(model: Any) -> dict[str, np.ndarray]:
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return tensors


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_tensors_have_hugging_face_names_and_layout(model_type: str, tmp_path: Path) -> None:
    model = model_of(model_type)
    checkpoint = open_checkpoint(write_model_gguf(model, tmp_path / "tiny.gguf"))
    assert_same_tensors(dict(checkpoint.tensors), hf_tensors(model))


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_tensors_equal_those_transformers_reads_from_the_same_file(model_type: str, tmp_path: Path) -> None:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = model_of(model_type)
    path = write_model_gguf(model, tmp_path / "tiny.gguf")
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    ours = open_checkpoint(path)
    if ours.config["tie_word_embeddings"]:
        theirs.pop("lm_head.weight", None)
    assert_same_tensors(dict(ours.tensors), {name: tensor.numpy() for name, tensor in theirs.items()})


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_config_resolves_to_the_same_model_as_config_json(model_type: str, tmp_path: Path) -> None:
    model = model_of(model_type, pad_token_id=None)
    checkpoint = open_checkpoint(write_model_gguf(model, tmp_path / "tiny.gguf"))
    assert model_config_from_hf(checkpoint.config) == model_config_from_hf(model.config.to_dict())


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_rows_are_the_same_read_alone_or_together(model_type: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_model_gguf(model_of(model_type), tmp_path / "tiny.gguf"))
    for name, handle in checkpoint.tensors.items():
        whole = handle.read()
        parts = [handle.read_rows(at, min(at + 5, handle.shape[0])) for at in range(0, handle.shape[0], 5)]
        np.testing.assert_array_equal(np.concatenate(parts), whole, err_msg=name)


def test_untied_head_is_kept(tmp_path: Path) -> None:
    model = model_of("gpt2", tie_word_embeddings=False)
    checkpoint = open_checkpoint(write_model_gguf(model, tmp_path / "tiny.gguf"))
    assert checkpoint.config["tie_word_embeddings"] is False
    assert "lm_head.weight" in checkpoint.tensors


@pytest.mark.parametrize(
    "kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "BF16"]
)
def test_every_quantized_type_is_dequantized_as_the_gguf_package_does(kind: str, tmp_path: Path) -> None:
    ggml_type = gguf.GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[ggml_type]
    columns = 512 // block * block_bytes
    # Bytes below 0x40 keep every float16 scale finite, wherever the block has it.
    raw = np.random.default_rng(0).integers(0, 0x40, (9, columns), dtype=np.uint8)
    expected = gguf.dequantize(raw, ggml_type)
    writer = gguf.GGUFWriter(tmp_path / "quantized.gguf", "qwen2")
    _qwen2_keys(writer)
    writer.add_tensor("blk.0.ffn_up.weight", raw, raw_dtype=ggml_type)
    handle = open_checkpoint(finish(writer)).tensors["model.layers.0.mlp.up_proj.weight"]
    assert (handle.shape, handle.storage) == ((9, 512), kind)
    np.testing.assert_array_equal(np.asarray(handle.read(), np.float32), expected)
    np.testing.assert_array_equal(np.asarray(handle.read_rows(3, 5), np.float32), expected[3:5])


def test_llama3_frequency_table_becomes_its_rope_scaling(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    table = _llama3_table(theta=500000.0, head_dim=64, scaling=scaling)
    assert _llama_config(table)["rope_scaling"] == scaling


def test_other_frequency_tables_become_longrope_with_the_same_numbers() -> None:
    table = np.linspace(1, 3, 32, dtype=np.float32)
    scaling = _llama_config(table)["rope_scaling"]
    assert scaling["rope_type"] == "longrope" and scaling["attention_factor"] == 1.0
    np.testing.assert_array_equal(np.asarray(scaling["long_factor"], np.float32), table)
    assert scaling["short_factor"] == scaling["long_factor"]


def test_phi3_factor_tensors_become_longrope(tmp_path: Path) -> None:
    model = model_of("phi3")
    path = tmp_path / "tiny.gguf"
    write_model_gguf(model, path, rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.25)
    short, long = np.full(8, 1.5, np.float32), np.full(8, 2.5, np.float32)
    path = _with_tensors(path, {"rope_factors_short.weight": short, "rope_factors_long.weight": long})
    checkpoint = open_checkpoint(path)
    assert checkpoint.config["original_max_position_embeddings"] == 64
    assert checkpoint.config["rope_scaling"] == {
        "rope_type": "longrope",
        "short_factor": [1.5] * 8,
        "long_factor": [2.5] * 8,
        "attention_factor": 1.25,
    }
    assert_same_tensors(dict(checkpoint.tensors), hf_tensors(model))


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "mamba")
    with pytest.raises(CheckpointError, match="architecture 'mamba' is not supported; supported: gemma3, gpt2"):
        open_checkpoint(finish(writer))


def test_unknown_tensor_is_named(tmp_path: Path) -> None:
    path = _with_tensors(write_model_gguf(model_of("llama"), tmp_path / "t.gguf"), {"blk.0.adapter.weight": np.ones(4)})
    with pytest.raises(CheckpointError, match=r"tensor blk\.0\.adapter\.weight \[4\] is unknown in architecture llama"):
        open_checkpoint(path)


def test_metadata_that_changes_the_mathematics_is_refused(tmp_path: Path) -> None:
    path = write_model_gguf(model_of("llama"), tmp_path / "t.gguf", expert_count=8)
    with pytest.raises(CheckpointError, match=r"llama\.expert_count = 8 is not supported"):
        open_checkpoint(path)


def test_layer_count_beyond_the_tensors_is_refused(tmp_path: Path) -> None:
    metadata = {"gemma3.block_count": 2**32 - 1}
    with pytest.raises(CheckpointError, match=r"gemma3\.block_count exceeds the 1 tensors of the file"):
        config_from_gguf(metadata, "gemma3", frozenset({"token_embd.weight"}), {})


@pytest.mark.parametrize("value", [0, "four", -1, 2.5, None])
def test_sizes_must_be_positive_integers(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"llama\.block_count is .*, expected a positive integer"):
        config_from_gguf({"llama.block_count": value}, "llama", frozenset({"token_embd.weight"}), {})


def test_ggml_type_without_dequantizer_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen2")
    _qwen2_keys(writer)
    writer.add_tensor("output.weight", np.zeros((1, 66), np.uint8), raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    with pytest.raises(CheckpointError, match=r"tensor output\.weight is stored as IQ2_XXS, which cannot be read"):
        open_checkpoint(finish(writer))


def _qwen2_keys(writer: gguf.GGUFWriter) -> None:
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(512)
    writer.add_feed_forward_length(9)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-6)
    write_byte_tokenizer(writer, 259)


def _with_tensors(path: Path, extra: dict[str, np.ndarray]) -> Path:
    """A copy of the GGUF file with more float32 tensors."""
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path.with_name("more.gguf"), architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    for name, values in extra.items():
        writer.add_tensor(name, values.astype(np.float32))
    return finish(writer)


def _llama_config(table: np.ndarray) -> dict[str, Any]:
    metadata = {
        "llama.attention.head_count": 2,
        "llama.embedding_length": 128,
        "llama.feed_forward_length": 96,
        "llama.block_count": 1,
        "llama.context_length": 131072,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        "tokenizer.ggml.tokens": ["a"],
    }
    return config_from_gguf(metadata, "llama", frozenset({"token_embd.weight"}), {"rope_freqs.weight": table})


def _llama3_table(theta: float, head_dim: int, scaling: dict[str, Any]) -> np.ndarray:
    """What llama.cpp's LlamaModel.generate_extra_tensors writes."""
    frequencies = 1.0 / (theta ** (np.arange(0, head_dim, 2) / head_dim))
    low, high, original = (
        scaling["low_freq_factor"],
        scaling["high_freq_factor"],
        scaling["original_max_position_embeddings"],
    )
    table = []
    for frequency in frequencies:
        wavelength = 2 * np.pi / frequency
        if wavelength < original / high:
            table.append(1.0)
        elif wavelength > original / low:
            table.append(scaling["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            table.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(table, np.float32)
