"""Builds the CPU engine of a parity case and steps it through ``_core.CpuModel``."""

from __future__ import annotations

from pathlib import Path

from tests.parity.cases import ParityCase
from tests.parity.harness import BLOCK_SIZE, NUM_BLOCKS, Array
from tests.tiny_models import save_tiny_model
from trtc.build import build_engine
from trtc.config import BuildConfig

ENGINE_BLOCK_SIZE = 2 * BLOCK_SIZE  # the smallest an engine may have


class CpuRunner:
    """A step runner over an engine; every one has an empty KV cache of its own."""

    def __init__(self, engine: Path, threads: int = 2, num_blocks: int = NUM_BLOCKS) -> None:
        from trtc import _core

        self.model = _core.CpuModel(str(engine), threads)
        self.model.allocate_kv_cache(num_blocks)

    def __call__(self, inputs: dict[str, Array]) -> Array:
        logits: Array = self.model.run(**inputs)
        return logits


def build_case_engine(case: ParityCase, directory: Path, **settings: object) -> Path:
    """Write the case's model and build it, float32 unless ``settings`` say otherwise. Returns the engine directory."""
    checkpoint = save_tiny_model(case.model_type, directory / "checkpoint", **case.overrides)
    fields = {"dtype": "float32", "max_seq_len": case.max_seq_len, "tokens_per_block": ENGINE_BLOCK_SIZE, **settings}
    return build_engine(checkpoint, directory / "engine", BuildConfig.model_validate(fields)).path
