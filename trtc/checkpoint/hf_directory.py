"""A Hugging Face model directory: config.json, safetensors weights (one file or indexed shards), tokenizer files."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtc.checkpoint.checkpoint import Checkpoint, fingerprint_of
from trtc.checkpoint.safetensors_reader import open_safetensors
from trtc.checkpoint.tensor_handle import Array, TensorHandle
from trtc.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def open_hf_directory(directory: Path) -> Checkpoint:
    """Open ``directory``. Raises CheckpointError when config.json or the safetensors weights are missing or damaged."""
    config_path = directory / "config.json"
    if not config_path.is_file():
        raise CheckpointError(
            f"{directory} has no config.json; expected a Hugging Face model directory or a .gguf file"
        )
    config = read_json_object(config_path)
    tensors: dict[str, TensorHandle] = {}
    mappings: list[Array] = []
    parts = [b"safetensors", json.dumps(config, sort_keys=True).encode()]
    files = _weight_files(directory)
    for file in files:
        shard, header, mapping = open_safetensors(file)
        twice = tensors.keys() & shard.keys()
        if twice:
            raise CheckpointError(f"{directory}: tensor {min(twice)} is in {file.name} and in an earlier shard")
        tensors.update(shard)
        parts.append(header)
        mappings.append(mapping)
    _check_index(directory, tensors)
    extra = [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]
    source = str(config.get("_name_or_path") or directory.resolve().name)
    fingerprint = fingerprint_of(parts, [*files, *extra])
    return Checkpoint(directory, source, config, tensors, fingerprint, HfTokenizerFiles(directory), tuple(mappings))


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError when it cannot be read or is something else."""
    try:
        data = path.read_bytes()
        value = json.loads(data)
        if _ESCAPED_SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()  # half a character could not be written again
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}, expected an object")
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _weight_files(directory: Path) -> list[Path]:
    if (directory / INDEX_FILE).is_file():
        weight_map = _weight_map(directory)
        return [directory / _shard_name(directory, shard) for shard in sorted(set(weight_map.values()), key=str)]
    if (directory / SINGLE_FILE).is_file():
        return [directory / SINGLE_FILE]
    torch_files = sorted(path.name for path in (*directory.glob("*.bin"), *directory.glob("*.pt*")))
    if torch_files:
        raise CheckpointError(
            f"{directory} holds only torch pickles ({', '.join(torch_files[:3])}), which run code when read; convert "
            "them to safetensors with transformers: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)"
        )
    raise CheckpointError(f"{directory} has no weights; expected {SINGLE_FILE}, or {INDEX_FILE} with its shards")


def _weight_map(directory: Path) -> dict[str, Any]:
    weight_map = read_json_object(directory / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{directory / INDEX_FILE} has no weight_map from tensor names to shard files")
    return weight_map


def _shard_name(directory: Path, shard: object) -> str:
    """A shard is a plain file name: an index must not lead out of its directory."""
    if not isinstance(shard, str) or not shard.endswith(".safetensors") or Path(shard).name != shard or "\\" in shard:
        raise CheckpointError(
            f"{directory / INDEX_FILE} names the shard {shard!r}; expected the plain name of a .safetensors file"
        )
    if not (directory / shard).is_file():
        raise CheckpointError(
            f"{directory} lacks the shard {shard} that {INDEX_FILE} names; the download is incomplete"
        )
    return shard


def _check_index(directory: Path, tensors: dict[str, TensorHandle]) -> None:
    if (directory / INDEX_FILE).is_file():
        missing = _weight_map(directory).keys() - tensors.keys()
        if missing:
            raise CheckpointError(f"{directory}: tensor {min(missing)} is in {INDEX_FILE} but in none of its shards")


@dataclass(frozen=True)
class HfTokenizerFiles:
    """The tokenizer files of a Hugging Face directory, copied with their settings gathered in one place."""

    directory: Path

    def write(self, directory: Path) -> None:
        if not (self.directory / "tokenizer.json").is_file():
            raise CheckpointError(
                f"{self.directory} has no tokenizer.json; make one with transformers: "
                "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
            )
        read_json_object(self.directory / "tokenizer.json")
        shutil.copyfile(self.directory / "tokenizer.json", directory / "tokenizer.json")
        config = self._optional("special_tokens_map.json") | self._optional("tokenizer_config.json")
        template = self._chat_template(config.pop("chat_template", None))
        write_json(directory / "tokenizer_config.json", config)
        if template is not None:
            (directory / "chat_template.jinja").write_text(template, "utf-8")
        if (self.directory / "generation_config.json").is_file():
            write_json(directory / "generation_config.json", self._optional("generation_config.json"))

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        return read_json_object(path) if path.is_file() else {}

    def _chat_template(self, inline: object) -> str | None:
        """The file wins over tokenizer_config.json, as in transformers; of several named templates, "default"."""
        path = self.directory / "chat_template.jinja"
        if path.is_file():
            try:
                return path.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise CheckpointError(f"{path} cannot be read: {error}") from error
        if isinstance(inline, list):
            named = [entry for entry in inline if isinstance(entry, dict) and entry.get("name") == "default"]
            inline = named[-1].get("template") if named else None
        return inline if isinstance(inline, str) else None
