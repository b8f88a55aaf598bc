"""Hub ids: the files a build needs, and one sentence when the hub says no. The network is never touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from tests.tiny_models import save_tiny_model
from trtc.checkpoint.hub import is_hub_id
from trtc.checkpoint.reader import open_checkpoint
from trtc.errors import CheckpointError


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True),
        ("gpt2", False),
        ("org/model.v1_x", True),
        ("./org/name", False),
        ("/abs/name", False),
        ("a/b/c", False),
        ("dir/model.gguf", False),
        ("../x/y", False),
        ("org/na me", False),
    ],
)
def test_hub_ids_are_told_from_paths(model: str, expected: bool) -> None:
    assert is_hub_id(model) is expected


def test_only_the_needed_files_are_asked_for_and_progress_is_in_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_tiny_model("llama", tmp_path)
    asked: dict[str, Any] = {}

    def snapshot_download(model: str, *, allow_patterns: list[str], tqdm_class: Any) -> str:
        asked[model] = allow_patterns
        with tqdm_class(total=100, unit="B") as bytes_bar, tqdm_class(total=3, unit="it") as files_bar:
            bytes_bar.update(40)
            bytes_bar.refresh()
            files_bar.refresh()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    reports: list[tuple[str, int, int]] = []
    checkpoint = open_checkpoint("org/name", progress=lambda *report: reports.append(report))
    assert (checkpoint.path, checkpoint.source) == (tmp_path, f"org/name@{tmp_path.name}")
    assert not any("bin" in pattern or pattern == "*" for pattern in asked["org/name"])
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(asked["org/name"])
    assert ("download", 40, 100) in reports and {total for _, _, total in reports} == {100}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LocalEntryNotFoundError("offline"), "the Hugging Face hub cannot be reached to download it"),
        (OSError("disk full\nand more"), "could not be downloaded from the Hugging Face hub: disk full$"),
        (RuntimeError(), "could not be downloaded from the Hugging Face hub: RuntimeError$"),
    ],
)
def test_failed_download_is_one_sentence(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\n" not in _failure(error, monkeypatch, message)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RepositoryNotFoundError, "neither a local path nor a public model"),
        (GatedRepoError, "gated on the Hugging Face hub; accept its terms and set HF_TOKEN"),
    ],
)
def test_refusal_of_the_hub_is_one_sentence(kind: type, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _failure(kind.__new__(kind), monkeypatch, message)


def _failure(error: Exception, monkeypatch: pytest.MonkeyPatch, message: str) -> str:
    def snapshot_download(*_args: Any, **_options: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(CheckpointError, match=message) as raised:
        open_checkpoint("org/name")
    return str(raised.value)
