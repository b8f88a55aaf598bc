"""The environment variables that trtc reads. Python reads them here alone; docs/environment.md lists them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtc.errors import ConfigError


@dataclass(frozen=True)
class Variable:
    """One variable: its name, who reads it and what it does."""

    name: str
    reader: str
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable("TRTC_CACHE_DIR", "Python", "where LLM(model) keeps the engines it builds; default $XDG_CACHE_HOME/trtc"),
    Variable("XDG_CACHE_HOME", "Python", "the user's cache directory; default ~/.cache"),
    Variable("LD_LIBRARY_PATH", "Python", "kept, behind TensorRT's libraries, for the process that builds its engines"),
    Variable("TRTC_CPU_ISA", "C++", "forces the kernels of one instruction set; default the best this machine has"),
)


def cache_dir() -> Path:
    """Where engines built by ``LLM(model)`` live. Raises ConfigError where there is no home directory."""
    own, shared = os.environ.get("TRTC_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    place = Path(own) if own else Path(shared or "~/.cache") / "trtc"
    try:
        return place.expanduser()
    except RuntimeError:
        raise ConfigError(
            f"the engine cache is {place}, but that home directory is unknown; set TRTC_CACHE_DIR to a full path"
        ) from None


def user_path(path: str | Path) -> Path:
    """``path`` with a leading ~ replaced by the home directory. Raises ConfigError where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: that home directory is unknown; give the full path") from None


def child_environment(libraries: Sequence[str], modules: Sequence[str]) -> dict[str, str]:
    """The variables for a process that finds shared libraries in these directories first, Python modules in those."""
    known = os.environ.get("LD_LIBRARY_PATH")
    paths = [*libraries, *([known] if known else [])]
    found = {"LD_LIBRARY_PATH": os.pathsep.join(paths)} if paths else {}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(modules), **found}
