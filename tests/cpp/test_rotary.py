"""Rotary embedding of every instruction set against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpp.guarded import EPS, ISAS, GuardedRows, assert_within, same_bits
from trtc import _test_kernels as k

pytestmark = pytest.mark.parametrize("isa", ISAS)


def make_case(rows: int, heads: int, head_dim: int, rotary_dim: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(head_dim * 100 + rotary_dim)
    x = rng.normal(size=(rows, heads * head_dim)).astype(np.float32)
    angle = np.outer(np.arange(40), 1e4 ** (-np.arange(rotary_dim // 2) / max(rotary_dim // 2, 1)))
    positions = rng.integers(0, 40, rows).astype(np.int32)
    return x, positions, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotary_reference(
    x: np.ndarray, heads: int, positions: np.ndarray, cos: np.ndarray, sin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Value and error bound: two products, one sum."""
    rows, half = x.shape[0], cos.shape[1]
    y = x.astype(np.float64).reshape(rows, heads, -1)
    c, s = cos[positions].astype(np.float64)[:, None], sin[positions].astype(np.float64)[:, None]
    a, b = y[..., :half].copy(), y[..., half : 2 * half].copy()
    bound = np.zeros_like(y)
    y[..., :half], y[..., half : 2 * half] = a * c - b * s, b * c + a * s
    bound[..., :half] = 2 * EPS * (np.abs(a * c) + np.abs(b * s))
    bound[..., half : 2 * half] = 2 * EPS * (np.abs(b * c) + np.abs(a * s))
    return y.reshape(rows, -1), bound.reshape(rows, -1)


@pytest.mark.parametrize(
    ("head_dim", "rotary_dim"),
    [
        (8, 8),
        (16, 16),
        (64, 64),
        (80, 80),
        (96, 96),
        (80, 32),
        (96, 72),
        (10, 6),
        (33, 18),
        (67, 2),
        (8, 0),
        (256, 256),
    ],
)
@pytest.mark.parametrize("heads", [1, 3])
def test_rotary_matches_float64_and_copies_the_other_channels(
    isa: str, heads: int, head_dim: int, rotary_dim: int
) -> None:
    x, positions, cos, sin = make_case(5, heads, head_dim, rotary_dim)
    y = GuardedRows.unset(*x.shape)
    k.rotary(isa, GuardedRows(x).rows, y.rows, heads, positions, cos, sin)
    expected, bound = rotary_reference(x, heads, positions, cos, sin)
    assert_within(y.rows, expected, bound)
    y.assert_guards_intact()

    in_place = GuardedRows(x)
    k.rotary(isa, in_place.rows, in_place.rows, heads, positions, cos, sin)
    assert same_bits(in_place.rows, y.rows)
    in_place.assert_guards_intact()


def test_a_row_does_not_depend_on_other_rows_or_threads(isa: str) -> None:
    x, positions, cos, sin = make_case(6, 3, 20, 14)
    whole = np.empty_like(x)
    k.rotary(isa, x, whole, 3, positions, cos, sin)
    for threads in range(2, 6):
        again = np.empty_like(x)
        k.rotary(isa, x, again, 3, positions, cos, sin, threads=threads)
        assert same_bits(again, whole)
    for row in range(6):
        alone = np.empty_like(x[:1])
        k.rotary(isa, x[row : row + 1], alone, 3, positions[row : row + 1], cos, sin)
        assert same_bits(alone[0], whole[row])
