"""Scalar conversions to and from the 16-bit float formats, against numpy and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from trtc import _test_kernels as k

ALL_16_BITS = np.arange(65536, dtype=np.uint16)


def floats_of_every_kind() -> np.ndarray:
    """Random bit patterns, and every 16-bit value widened with its neighbours and the ties between."""
    rng = np.random.default_rng(0)
    patterns = [rng.integers(0, 2**32, 200_000, dtype=np.uint32)]
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001):
        patterns.append((ALL_16_BITS.astype(np.uint32) << 16) | np.uint32(low))
    halves = ALL_16_BITS.view(np.float16).astype(np.float32).view(np.uint32)
    for step in (0, 1, 0xFFF, 0x1000, 0x1001):
        patterns.append(halves + np.uint32(step))
    return np.concatenate(patterns).view(np.float32)


def assert_same_floats(actual: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, except that any NaN equals any other."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    assert actual[~nan].tobytes() == expected[~nan].tobytes()


def test_widening_is_exact() -> None:
    assert_same_floats(k.f16_to_f32(ALL_16_BITS), ALL_16_BITS.view(np.float16).astype(np.float32))
    assert_same_floats(k.bf16_to_f32(ALL_16_BITS), ALL_16_BITS.view(ml_dtypes.bfloat16).astype(np.float32))


def test_narrowing_rounds_to_nearest_even() -> None:
    x = floats_of_every_kind()
    with np.errstate(over="ignore", invalid="ignore"):
        halves, brains = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    assert_same_floats(k.f32_to_f16(x).view(np.float16), halves)
    assert_same_floats(k.f32_to_bf16(x).view(ml_dtypes.bfloat16).astype(np.float32), brains.astype(np.float32))
