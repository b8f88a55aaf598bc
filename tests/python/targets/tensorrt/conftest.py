from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.python.targets.tensorrt.models import save_wide_model


@pytest.fixture(scope="session")
def rtx() -> None:
    """Skips the test where TensorRT for RTX is not installed."""
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("no tensorrt_rtx; pip install 'trtc[tensorrt-rtx]'")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of a model of that type; each is made once."""
    directories: dict[str, Path] = {}

    def directory(model_type: str) -> Path:
        if model_type not in directories:
            directories[model_type] = save_wide_model(model_type, tmp_path_factory.mktemp(model_type) / model_type)
        return directories[model_type]

    return directory
