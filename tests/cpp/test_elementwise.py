"""Activations and arithmetic of every instruction set; arithmetic is exact, activations are held to stated bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cpp.guarded import EPS, ISAS, GuardedRows, assert_within, same_bits
from trtc import _test_kernels as k

COLS = [1, 7, 8, 9, 15, 16, 17, 33, 511, 512, 513, 1100]
SMALLEST_NORMAL = 2.0**-126

pytestmark = pytest.mark.parametrize("isa", ISAS)


def sweep() -> np.ndarray:
    """float32 over all magnitudes up to 120, dense where the functions bend, with the borders of their pieces."""
    rng = np.random.default_rng(0)
    dense = np.linspace(-12, 12, 60001)
    wide = np.linspace(-120, 120, 20001)
    tiny = 2.0 ** rng.uniform(-60, 1, 20000) * rng.choice([-1.0, 1.0], 20000)
    borders = np.array([0.0, -0.0, 0.625, -0.625, 88.7, -88.7, 104.0, -104.0, 9.0109, -9.0109])
    return np.concatenate([dense, wide, tiny, borders, np.nextafter(borders, 1000)]).astype(np.float32)


def activation_reference(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and error bound in float64; the bounds are those of cpp/src/kernels/elementwise_impl.h."""
    with np.errstate(over="ignore"):
        if name == "silu":
            y = x / (1 + np.exp(-x))
            return y, 8 * EPS * np.abs(y)
        if name == "gelu":
            y = 0.5 * x * np.vectorize(math.erfc)(-x / math.sqrt(2))
            return y, (12 + 4 * np.minimum(x * x, 400)) * EPS * np.abs(y)
        if name == "gelu_tanh":
            u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            y = x / (1 + np.exp(-2 * u))
            return y, (8 + 8 * np.minimum(np.abs(u), 100)) * EPS * np.abs(y)
        y = np.tanh(x)
        return y, 4 * EPS * np.abs(y)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "tanh"])
def test_activation_stays_within_its_error_bound(isa: str, name: str) -> None:
    x = sweep()[None]
    y = np.empty_like(x)
    k.activation(isa, name, x, y)
    expected, bound = activation_reference(name, x.astype(np.float64))
    # Where exp leaves the normal floats, only the absolute error counts.
    assert_within(y, expected, bound + SMALLEST_NORMAL * (1 + np.abs(x)))


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "tanh"])
def test_activation_has_the_right_tails(isa: str, name: str) -> None:
    x = np.array([[1e4, 3e38, np.inf, -1e4, -3e38, np.nan, 0.0]], np.float32)
    y = np.empty_like(x)
    k.activation(isa, name, x, y)
    right, left = ([1, 1, 1], [-1, -1]) if name == "tanh" else ([np.float32(1e4), np.float32(3e38), np.inf], [0, 0])
    assert y[0, :3].tolist() == right
    assert y[0, 3:5].tolist() == left
    assert np.isnan(y[0, 5])
    assert y[0, 6] == 0


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_gated_activation_multiplies_by_the_second_half(isa: str, name: str, cols: int) -> None:
    x = np.random.default_rng(cols).normal(0, 3, (3, 2 * cols)).astype(np.float32)
    y, act = GuardedRows.unset(3, cols), np.empty((3, cols), np.float32)
    k.gated_activation(isa, name, GuardedRows(x).rows, y.rows)
    k.activation(isa, name, x[:, :cols].copy(), act)
    assert same_bits(y.rows, act * x[:, cols:])
    y.assert_guards_intact()


@pytest.mark.parametrize("cols", COLS)
def test_arithmetic_is_exact_and_stays_inside_its_rows(isa: str, cols: int) -> None:
    rng = np.random.default_rng(cols)
    a, b = rng.normal(size=(2, 3, cols)).astype(np.float32)
    for name, expected in (("add", a + b), ("mul", a * b)):
        y = GuardedRows.unset(3, cols)
        getattr(k, name)(isa, GuardedRows(a).rows, GuardedRows(b, gap=9).rows, y.rows)
        assert same_bits(y.rows, expected)
        y.assert_guards_intact()
        row = GuardedRows.unset(3, cols)
        getattr(k, name)(isa, GuardedRows(a).rows, b[:1], row.rows)
        assert same_bits(row.rows, a + b[:1] if name == "add" else a * b[:1])
    y = GuardedRows.unset(3, cols)
    k.scale(isa, GuardedRows(a).rows, 1.7, y.rows)
    assert same_bits(y.rows, a * np.float32(1.7))
    y.assert_guards_intact()


@pytest.mark.parametrize("cols", COLS)
def test_gather_rows_copies_the_named_rows(isa: str, cols: int) -> None:
    x = np.random.default_rng(cols).normal(size=(6, cols)).astype(np.float32)
    ids = np.array([5, 0, 3, 3], np.int32)
    y = GuardedRows.unset(4, cols)
    k.gather_rows(isa, GuardedRows(x).rows, ids, y.rows)
    assert same_bits(y.rows, x[ids])
    y.assert_guards_intact()


@pytest.mark.parametrize("cols", [37, 1100])
def test_results_do_not_depend_on_threads_or_place(isa: str, cols: int) -> None:
    x = np.random.default_rng(1).normal(0, 4, (3, cols)).astype(np.float32)
    whole = np.empty_like(x)
    k.activation(isa, "gelu", x, whole)
    for threads in range(2, 6):
        again = x.copy()
        k.activation(isa, "gelu", again, again, threads=threads)
        assert same_bits(again, whole)
    shifted = np.empty((1, cols - 5), np.float32)
    k.activation(isa, "gelu", x[:1, 5:], shifted)
    assert same_bits(shifted[0], whole[0, 5:])


def test_arithmetic_in_place_gives_the_same_bits(isa: str) -> None:
    a, b = np.random.default_rng(2).normal(size=(2, 4, 45)).astype(np.float32)
    over_a, over_b, scaled = a.copy(), b.copy(), a.copy()
    k.add(isa, over_a, b, over_a)
    k.mul(isa, a, over_b, over_b)
    k.scale(isa, scaled, -0.3, scaled)
    assert same_bits(over_a, a + b)
    assert same_bits(over_b, a * b)
    assert same_bits(scaled, a * np.float32(-0.3))
