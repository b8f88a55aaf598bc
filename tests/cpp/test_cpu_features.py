"""Levels of instruction sets and how one is chosen."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from trtc import _test_kernels as k
from trtc.errors import EngineError

LEVELS = ["portable", "avx2", "avx512", "avx512_bf16"]


def test_levels_are_a_prefix_of_the_ladder() -> None:
    available = k.available_isas()
    assert available == LEVELS[: len(available)]


@pytest.mark.skipif(platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="needs /proc/cpuinfo")
def test_detection_agrees_with_the_kernel() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split("flags\t\t:")[1].split("\n")[0].split())
    needed = [
        set(),
        {"avx2", "fma", "f16c"},
        {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
        {"avx512_bf16"},
    ]
    expected = 0
    while expected < 4 and needed[expected] <= flags:
        expected += 1
    assert k.available_isas() == LEVELS[:expected]


def test_the_best_level_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRTC_CPU_ISA", raising=False)
    assert k.selected_isa() == k.available_isas()[-1]
    monkeypatch.setenv("TRTC_CPU_ISA", "")
    assert k.selected_isa() == k.available_isas()[-1]


def test_the_environment_forces_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    for level in k.available_isas():
        monkeypatch.setenv("TRTC_CPU_ISA", level)
        assert k.selected_isa() == level


def test_an_unknown_or_missing_level_is_an_error_that_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTC_CPU_ISA", "AVX2")
    with pytest.raises(EngineError, match="is 'AVX2'; expected portable, avx2, avx512 or avx512_bf16"):
        k.selected_isa()
    for level in LEVELS[len(k.available_isas()) :]:
        monkeypatch.setenv("TRTC_CPU_ISA", level)
        with pytest.raises(EngineError, match=f"asks for {level} but this machine's highest level is"):
            k.selected_isa()


def test_kernels_of_a_level_this_machine_lacks_are_refused() -> None:
    x = np.zeros((1, 4), np.float32)
    for level in LEVELS[len(k.available_isas()) :]:
        with pytest.raises(EngineError, match=f"kernels of level {level} cannot run here"):
            k.scale(level, x, 1.0, x)
