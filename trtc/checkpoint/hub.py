"""Checkpoints on the Hugging Face hub: the files a build needs, and only those, in the hub's own cache."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trtc.checkpoint.hf_directory import INDEX_FILE, SINGLE_FILE, TOKENIZER_FILES
from trtc.checkpoint.tensor_handle import Progress
from trtc.errors import CheckpointError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NEEDED = ["config.json", SINGLE_FILE, INDEX_FILE, "model-*-of-*.safetensors", *TOKENIZER_FILES]


def is_hub_id(model: str) -> bool:
    """Whether ``model`` is spelled like org/name and unlike a file."""
    return _HUB_ID.fullmatch(model) is not None and not model.endswith((".gguf", ".safetensors", ".bin", ".json"))


def download(model: str, progress: Progress | None = None) -> Path:
    """The local snapshot of hub id ``model``, downloaded where the cache lacks it.

    Raises CheckpointError in one sentence when the hub has no such model, refuses it, or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    options: dict[str, Any] = {} if progress is None else {"tqdm_class": _progress_bar(progress)}
    try:
        return Path(snapshot_download(model, allow_patterns=_NEEDED, **options))
    except GatedRepoError as error:
        raise CheckpointError(f"{model} is gated on the Hugging Face hub; accept its terms and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"{model} is neither a local path nor a public model on the Hugging Face hub") from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{model} is not a local path, and the Hugging Face hub cannot be reached to download it; "
            "check the path, or the network and HF_HUB_OFFLINE"
        ) from error
    except Exception as error:  # the hub client lets its HTTP library's errors through, and that library changes
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{model} could not be downloaded from the Hugging Face hub: {first_line}") from error


def _progress_bar(progress: Progress) -> type[Any]:
    """A tqdm class that draws nothing and reports the downloaded bytes."""
    from huggingface_hub.utils.tqdm import tqdm

    class ReportingBar(tqdm):
        def display(self, *args: Any, **kwargs: Any) -> None:
            if self.unit == "B":
                progress("download", int(self.n), int(self.total or 0))

    return ReportingBar
