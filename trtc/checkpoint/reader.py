"""``open_checkpoint``: one door to every kind of checkpoint. Nothing is loaded; tensors are read when asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trtc.checkpoint.checkpoint import Checkpoint
from trtc.checkpoint.gguf_reader import open_gguf
from trtc.checkpoint.hf_directory import open_hf_directory
from trtc.checkpoint.hub import download, is_hub_id
from trtc.checkpoint.tensor_handle import Progress, TensorHandle
from trtc.environment import user_path
from trtc.errors import CheckpointError

__all__ = ["Checkpoint", "TensorHandle", "open_checkpoint"]


def open_checkpoint(model: str | Path, *, progress: Progress | None = None) -> Checkpoint:
    """Open a Hugging Face directory, a ``.gguf`` file, or a hub id (downloaded with huggingface_hub).

    Raises CheckpointError in one sentence when it is none of these, is damaged, or cannot be downloaded.
    """
    path = user_path(model)
    if path.is_file():
        return open_gguf(path)
    if not path.exists() and is_hub_id(str(model)):
        snapshot = download(str(model), progress)
        return replace(_open_directory(snapshot), source=f"{model}@{snapshot.name}")
    if not path.is_dir():
        raise CheckpointError(
            f"{model} does not exist; expected a Hugging Face model directory, a .gguf file or a hub id like org/name"
        )
    return _open_directory(path)


def _open_directory(directory: Path) -> Checkpoint:
    files = sorted(directory.glob("*.gguf"))
    if not files or (directory / "config.json").is_file():
        return open_hf_directory(directory)
    if len(files) > 1:
        raise CheckpointError(f"{directory} holds {len(files)} .gguf files; name one of them, such as {files[0]}")
    return open_gguf(files[0])
