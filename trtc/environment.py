"""The environment variables that trtc reads. Python reads them here alone; docs/environment.md lists them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Variable:
    """One variable: its name, who reads it and what it does."""

    name: str
    reader: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable("TRTC_CACHE_DIR", "Python", "where LLM(model) keeps the engines it builds; default $XDG_CACHE_HOME/trtc"),
    Variable("XDG_CACHE_HOME", "Python", "the user's cache directory; default ~/.cache"),
    Variable("TRTC_CPU_ISA", "C++", "forces the kernels of one instruction set; default the best this machine has"),
)


def cache_dir() -> Path:
    """Where engines built by ``LLM(model)`` live."""
    own = os.environ.get("TRTC_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "trtc"
