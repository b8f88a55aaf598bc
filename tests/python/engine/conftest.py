from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.python.targets.graphs import build_toy_engine, linear, step_graph


def gated_layer(g, x):
    """A little of everything that a record can hold: norms, biases, gates, activations."""
    from tests.python.targets.test_lower import gated, layer_norm, rotary

    return gated("silu")(g, layer_norm(g, rotary(g, linear(g, x, "in_proj", 24))))


@pytest.fixture(scope="session")
def toy_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that tests may read but not change."""
    return build_toy_engine(step_graph(gated_layer), tmp_path_factory.mktemp("toy") / "engine")


@pytest.fixture
def engine(toy_engine: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(toy_engine, tmp_path / "engine"))
