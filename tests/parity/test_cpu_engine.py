"""Every recipe as a CPU engine against transformers in float32: prefill, chunked prefill and paged decode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.cases import CASES, ParityCase
from tests.parity.cpu_engine import ENGINE_BLOCK_SIZE, CpuRunner, build_case_engine
from tests.parity.harness import assert_parity


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_engine_gives_the_logits_of_transformers(case: ParityCase, tmp_path: Path) -> None:
    engine = build_case_engine(case, tmp_path)
    assert_parity(case, lambda: CpuRunner(engine), block_size=ENGINE_BLOCK_SIZE)
