"""``open_checkpoint``: one door to every kind of checkpoint. Nothing is loaded; tensors are read when asked for."""

from __future__ import annotations

from pathlib import Path

from trtc.checkpoint.checkpoint import Checkpoint
from trtc.checkpoint.hf_directory import open_hf_directory
from trtc.checkpoint.tensor_handle import Progress, TensorHandle
from trtc.errors import CheckpointError

__all__ = ["Checkpoint", "TensorHandle", "open_checkpoint"]


def open_checkpoint(model: str | Path, *, progress: Progress | None = None) -> Checkpoint:
    """Open a Hugging Face directory, a ``.gguf`` file, or a hub id (downloaded with huggingface_hub).

    Raises CheckpointError in one sentence when it is none of these, is damaged, or cannot be downloaded.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return open_hf_directory(path)
    raise CheckpointError(f"{model} is neither a directory, a .gguf file nor a hub id")
