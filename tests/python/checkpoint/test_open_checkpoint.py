"""One door: directories, GGUF files and hub ids, and a clear sentence for everything else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.tiny_models import save_tiny_model
from trtc.checkpoint.reader import open_checkpoint
from trtc.errors import CheckpointError
from trtc.runtime.tokenizer import Tokenizer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory of two shards with tokenizer files."""
    directory = tmp_path / "model"
    directory.mkdir()
    save_file({"a": np.ones((2, 2), np.float32)}, directory / "model-00001-of-00002.safetensors")
    save_file({"b": np.zeros((3,), np.float32)}, directory / "model-00002-of-00002.safetensors")
    write_index(directory, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
    (directory / "config.json").write_text('{"model_type": "llama"}')
    return directory


def write_index(directory: Path, weight_map: Any) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def refuses(model: str | Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(model)


def test_sharded_directory_gives_all_tensors(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    assert sorted(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.config == {"model_type": "llama"}
    np.testing.assert_array_equal(checkpoint.tensors["a"].read(), np.ones((2, 2)))


@pytest.mark.parametrize("shard_size", ["5GB", "40KB"])
def test_directories_saved_by_transformers_are_read_whole(shard_size: str, tmp_path: Path) -> None:
    from tests.tiny_models import tiny_model

    checkpoint = open_checkpoint(save_tiny_model("qwen2", tmp_path, max_shard_size=shard_size))
    expected = tiny_model("qwen2").state_dict()
    assert checkpoint.tensors.keys() == expected.keys()
    for name, handle in checkpoint.tensors.items():
        np.testing.assert_array_equal(handle.read(), expected[name].numpy(), err_msg=name)


def test_fingerprint_changes_with_weights_config_and_tokenizer_only(model: Path) -> None:
    before = open_checkpoint(model).fingerprint
    assert open_checkpoint(model).fingerprint == before
    moved = model.with_name("moved")
    model.rename(moved)
    assert open_checkpoint(moved).fingerprint == before
    seen = {before}
    (moved / "tokenizer.json").write_text("{}")
    seen.add(open_checkpoint(moved).fingerprint)
    (moved / "config.json").write_text('{"model_type": "qwen2"}')
    seen.add(open_checkpoint(moved).fingerprint)
    os.utime(moved / "model-00001-of-00002.safetensors", ns=(1, 1))
    seen.add(open_checkpoint(moved).fingerprint)
    assert len(seen) == 4


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/x.safetensors", "a/x.safetensors", "x.bin", 7, ".."])
def test_index_that_leads_out_of_the_directory_is_refused(shard: object, model: Path) -> None:
    save_file({"a": np.ones(1, np.float32)}, model.parent / "secret.safetensors")
    write_index(model, {"a": shard})
    refuses(model, "names the shard .*; expected the plain name of a .safetensors file")


def test_incomplete_or_contradictory_shards_are_named(model: Path) -> None:
    write_index(model, {"a": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"})
    refuses(model, "tensor c is in model.safetensors.index.json but in none of its shards")
    save_file({"a": np.zeros(1, np.float32)}, model / "model-00002-of-00002.safetensors")
    refuses(model, "tensor a is in model-00002-of-00002.safetensors and in an earlier shard")
    (model / "model-00002-of-00002.safetensors").unlink()
    refuses(model, "lacks the shard model-00002-of-00002.safetensors")


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "{", "\x00", "[" * 100000])
def test_malformed_index_is_a_checkpoint_error(index: str, model: Path) -> None:
    (model / "model.safetensors.index.json").write_text(index)
    refuses(model, "model.safetensors.index.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b'{"chat_template": "\\ud800"}', "tokenizer_config.json is not valid JSON"),
        ("chat_template.jinja", b"\xff\xfe", "chat_template.jinja cannot be read"),
        ("generation_config.json", b"[1]", "holds a JSON list, expected an object"),
    ],
)
def test_malformed_tokenizer_files_are_checkpoint_errors(
    model: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (model / "tokenizer.json").write_text("{}")
    (model / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(model).write_tokenizer(tmp_path)


def test_named_templates_that_are_malformed_are_no_template(model: Path, tmp_path: Path) -> None:
    (model / "tokenizer.json").write_text("{}")
    templates = [5, {"name": []}, {"template": "x"}, {"name": "default"}]
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    open_checkpoint(model).write_tokenizer(tmp_path)
    assert not (tmp_path / "chat_template.jinja").exists()


def test_torch_pickles_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    refuses(tmp_path, r"only torch pickles \(pytorch_model\.bin\).*save_pretrained")


def test_directories_that_are_no_checkpoints_say_what_is_missing(tmp_path: Path) -> None:
    refuses(tmp_path, "has no config.json")
    (tmp_path / "config.json").write_text("{}")
    refuses(tmp_path, "has no weights; expected model.safetensors")
    (tmp_path / "config.json").write_text("[]")
    refuses(tmp_path, "config.json holds a JSON list, expected an object")
    (tmp_path / "config.json").write_bytes(b"\xff{")
    refuses(tmp_path, "config.json is not valid JSON")


def test_paths_that_do_not_exist_are_said_so() -> None:
    refuses("./nowhere", "does not exist; expected a Hugging Face model directory")
    refuses("nowhere.gguf", "nowhere.gguf does not exist")
    refuses("/nowhere/at/all", "does not exist")


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    refuses(tmp_path / "x.txt", "is not a GGUF file")
    (tmp_path / "empty.gguf").write_bytes(b"")
    refuses(tmp_path / "empty.gguf", "empty.gguf cannot be read")


def test_several_gguf_files_in_a_directory_need_a_choice(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    refuses(tmp_path, r"holds 2 \.gguf files; name one of them")


def test_tokenizer_files_are_gathered_for_the_engine(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    save_tiny_model("llama", source)
    (source / "chat_template.jinja").unlink()
    settings = json.loads((source / "tokenizer_config.json").read_text())
    del settings["bos_token"]
    templates = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ messages[0].content }}"}]
    (source / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": templates}))
    (source / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "wrong"}))
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 260]}))
    open_checkpoint(source).write_tokenizer(target)
    assert sorted(path.name for path in target.iterdir()) == [
        "chat_template.jinja",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    tokenizer = Tokenizer.from_directory(target)
    assert tokenizer.special_tokens["bos_token"] == "<s>" and tokenizer.special_tokens["eos_token"] == "</s>"
    assert tokenizer.eos_token_ids == (257, 260)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]) == "hi"


def test_directory_without_tokenizer_json_says_how_to_make_one(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json; make one with transformers"):
        open_checkpoint(model).write_tokenizer(tmp_path)
