"""``Checkpoint``: what every reader gives, whatever the file format."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trtc.checkpoint.tensor_handle import Array, TensorHandle


class TokenizerSource(Protocol):
    """Where an engine's tokenizer files come from."""

    def write(self, directory: Path) -> None: ...


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    ``config`` has the fields of Hugging Face's config.json, whatever the file format; ``tensors`` have Hugging Face's
    names and layouts. ``fingerprint`` changes when any part that an engine depends on may have changed.
    """

    path: Path
    source: str
    config: dict[str, Any]
    tensors: Mapping[str, TensorHandle]
    fingerprint: str
    tokenizer: TokenizerSource
    mappings: tuple[Array, ...] = ()  # of the files that the tensors view

    def write_tokenizer(self, directory: Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and, where there are such, chat_template.jinja and
        generation_config.json. Raises CheckpointError when the checkpoint has no tokenizer that can be read."""
        self.tokenizer.write(Path(directory))

    def release_pages(self) -> None:
        """Give back the memory of the file pages that reading has touched. Views stay valid and read them again."""
        for mapping in self.mappings:
            if isinstance(mapping.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                mapping.base.madvise(mmap.MADV_DONTNEED)


def fingerprint_of(parts: list[bytes], files: list[Path]) -> str:
    """SHA-256 over ``parts`` and the name, size and modification time of ``files``."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    for file in sorted(files):
        stat = file.stat()
        digest.update(json.dumps([file.name, stat.st_size, stat.st_mtime_ns]).encode())
    return digest.hexdigest()
