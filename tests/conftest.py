"""Shared fixtures. Engines of the demo model are built once per test run, whatever the number of worker processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Makes `tests.*` importable; at the end, so that trtc is the installed one.
sys.path.append(str(Path(__file__).parents[1]))

from tests.demo_model import build_once, demo_model_path
from trtc.config import BuildConfig


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all worker processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file."""
    return demo_model_path()


@pytest.fixture(scope="session")
def smollm2_float32(run_directory: Path) -> Path:
    """Its engine in float32, KV cache too."""
    return build_once(run_directory, "smollm2-float32", BuildConfig(dtype="float32", max_seq_len=2048))


@pytest.fixture(scope="session")
def smollm2_int4(run_directory: Path) -> Path:
    """Its engine as the quickstart builds it."""
    return build_once(run_directory, "smollm2-int4", BuildConfig(quant={"quant_algo": "w4a16"}, max_seq_len=2048))


@pytest.fixture(scope="session")
def smollm2_int4_int8(run_directory: Path) -> Path:
    """Its engine with int4 weights and int8 activations."""
    return build_once(run_directory, "smollm2-w4a8", BuildConfig(quant={"quant_algo": "w4a8"}, max_seq_len=2048))
