from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.python.plugins.kernels.attention_steps import Step
from tests.python.plugins.kernels.interpreter import interpreter, run_step

Run = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="package")
def run() -> Iterator[Run]:
    """run(step, splits=1): output and kv_cache of a step in the interpreter."""
    pytest.importorskip("triton")
    with interpreter() as executor:

        def run(step: Step, splits: int = 1) -> tuple[np.ndarray, np.ndarray]:
            return executor.submit(run_step, step.shape, step.arrays, splits).result()

        yield run
