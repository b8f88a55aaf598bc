from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import model_recipes
from model_recipes import build_graph, find_recipe, known_recipes
from tests.tiny_models import save_tiny_model
from trtc.checkpoint.hf_config import READERS, model_config_from_hf
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.weight_map import WeightMap
from trtc.errors import CheckpointError, ConfigError, RecipeError


def build(directory: Path, max_seq_len: int | None = None, **config_changes: Any) -> ir.Model:
    checkpoint = open_checkpoint(directory)
    config = model_config_from_hf({**checkpoint.config, **config_changes})
    return build_graph(config, WeightMap(checkpoint.tensors, config.model_type), 16, max_seq_len)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("llama"), tie_word_embeddings=True)


def test_an_unknown_model_type_lists_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="no recipe for model_type 'mamba'; known: gemma3_text, gpt2, llama, mistral"):
        find_recipe("mamba")


def test_every_recipe_has_a_config_reader_and_the_reverse() -> None:
    assert known_recipes() == sorted(READERS)


def test_no_recipe_is_longer_than_120_lines() -> None:
    folder = Path(model_recipes.__file__).parent
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in folder.glob("*.py")}
    assert max(lengths.values()) <= 120, lengths


def test_tied_embeddings_are_one_initializer_used_twice(llama: Path) -> None:
    table = build(llama).graph.initializers["model.embed_tokens.weight"]
    assert sorted(use.node.op_type for use in table.uses()) == ["Gather", "Gemm"]


def test_rope_tables_have_a_row_per_position_of_the_engine(llama: Path) -> None:
    assert list(build(llama, max_seq_len=48).graph.initializers["rope.0.cos"].shape) == [48, 8]
    assert list(build(llama).graph.initializers["rope.0.cos"].shape) == [128, 8]


def test_layers_of_equal_rope_share_one_table(llama: Path) -> None:
    assert [name for name in build(llama).graph.initializers if name.startswith("rope.")] == [
        "rope.0.cos",
        "rope.0.sin",
    ]


def test_more_positions_than_the_model_has_are_refused(llama: Path) -> None:
    with pytest.raises(ConfigError, match="max_seq_len 129 exceeds the 128 positions"):
        build(llama, max_seq_len=129)


def test_a_tensor_that_the_recipe_does_not_use_is_an_error(llama: Path) -> None:
    with pytest.raises(CheckpointError, match=r"does not use .*model\.layers\.1\."):
        build(llama, num_hidden_layers=1)


def test_a_missing_tensor_is_named(llama: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing"):
        build(llama, tie_word_embeddings=False)


def test_gpt_2_without_the_transformer_prefix_and_with_stored_masks_gives_the_same_graph(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    save_tiny_model("gpt2", tmp_path)
    with_prefix = build(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    stripped = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    stripped["h.0.attn.bias"] = np.ones((1, 1, 128, 128), np.float32)
    save_file(stripped, tmp_path / "model.safetensors")
    without = build(tmp_path)
    assert [node.name for node in without.graph] == [node.name for node in with_prefix.graph]
    np.testing.assert_array_equal(
        without.graph.initializers["h.1.attn.c_attn.weight"].const_value.numpy(),
        with_prefix.graph.initializers["transformer.h.1.attn.c_attn.weight"].const_value.numpy(),
    )
