"""RMSNorm and LayerNorm of every instruction set against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpp.guarded import EPS, ISAS, GuardedRows, assert_within, same_bits
from trtc import _test_kernels as k

COLS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130, 576, 1023]
SHAPES = [(1, 1), (3, 1), (2, 5)]  # rows, groups
EPSILON = 1e-5

pytestmark = pytest.mark.parametrize("isa", ISAS)


def rms_norm_reference(x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and error bound; x [rows, groups, cols] float64."""
    cols = x.shape[-1]
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale
    # The sum of cols squares, then mean, epsilon, root, reciprocal and two products.
    return y, (0.5 * cols + 8) * EPS * np.abs(y)


def layer_norm_reference(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cols = x.shape[-1]
    mean = np.mean(x, axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=-1, keepdims=True) + EPSILON)
    normal = (x - mean) * inverse * scale
    # As above, and the mean's own error, at most cols roundings of the mean magnitude, enters each difference.
    mean_error = (cols + 1) * EPS * np.mean(np.abs(x), axis=-1, keepdims=True)
    bound = (0.5 * cols + 10) * EPS * np.abs(normal) + 2 * mean_error * inverse * np.abs(scale) + EPS * np.abs(bias)
    return normal + bias, bound


def random_rows(rows: int, groups: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows * 1000 + cols)
    x = rng.normal(0.3, 2.0, (rows, groups * cols)).astype(np.float32)
    return x, rng.normal(1, 0.3, cols).astype(np.float32), rng.normal(0, 1, cols).astype(np.float32)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize(("rows", "groups"), SHAPES)
def test_rms_norm_matches_float64(isa: str, rows: int, groups: int, cols: int) -> None:
    x, scale, _ = random_rows(rows, groups, cols)
    source, scales, y = GuardedRows(x), GuardedRows(scale[None]), GuardedRows.unset(rows, groups * cols)
    k.rms_norm(isa, source.rows, y.rows, scales.rows[0], EPSILON)
    expected, bound = rms_norm_reference(x.astype(np.float64).reshape(rows, groups, cols), scale)
    assert_within(y.rows.reshape(rows, groups, cols), expected, bound)
    y.assert_guards_intact()


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm_matches_float64(isa: str, cols: int, with_bias: bool) -> None:
    x, scale, bias = random_rows(3, 1, cols)
    bias = bias if with_bias else np.zeros_like(bias)
    source, scales, biases = GuardedRows(x), GuardedRows(scale[None]), GuardedRows(bias[None])
    y = GuardedRows.unset(3, cols)
    k.layer_norm(isa, source.rows, y.rows, scales.rows[0], EPSILON, bias=biases.rows[0] if with_bias else None)
    expected, bound = layer_norm_reference(x.astype(np.float64), scale.astype(np.float64), bias.astype(np.float64))
    assert_within(y.rows, expected, bound)
    y.assert_guards_intact()


@pytest.mark.parametrize("cols", [5, 16, 67])
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_residual_is_added_first_and_the_sum_is_handed_out(isa: str, norm: str, cols: int) -> None:
    x, scale, _ = random_rows(4, 1, cols)
    residual = np.random.default_rng(5).normal(size=(4, cols)).astype(np.float32)
    total, plain = GuardedRows.unset(4, cols), GuardedRows.unset(4, cols)
    y = GuardedRows.unset(4, cols)
    kernel = getattr(k, norm)
    kernel(isa, GuardedRows(x).rows, y.rows, scale, EPSILON, residual=GuardedRows(residual, gap=7).rows, sum=total.rows)
    kernel(isa, x + residual, plain.rows, scale, EPSILON)
    assert same_bits(total.rows, x + residual)
    assert same_bits(y.rows, plain.rows)
    total.assert_guards_intact()


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("sum_over", ["x", "residual"])
def test_aliased_outputs_give_the_same_bits(isa: str, norm: str, sum_over: str) -> None:
    x, scale, _ = random_rows(5, 1, 37)
    residual = np.random.default_rng(5).normal(size=x.shape).astype(np.float32)
    kernel = getattr(k, norm)
    apart, apart_sum = np.empty_like(x), np.empty_like(x)
    kernel(isa, x, apart, scale, EPSILON, residual=residual, sum=apart_sum)

    x_too, residual_too = x.copy(), residual.copy()
    total = x_too if sum_over == "x" else residual_too
    y = x_too if sum_over == "residual" else np.empty_like(x)
    kernel(isa, x_too, y, scale, EPSILON, residual=residual_too, sum=total)
    assert same_bits(total, apart_sum)
    assert same_bits(y, apart)

    in_place, out_of_place = x.copy(), np.empty_like(x)
    kernel(isa, in_place, in_place, scale, EPSILON)
    kernel(isa, x, out_of_place, scale, EPSILON)
    assert same_bits(in_place, out_of_place)


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_a_row_does_not_depend_on_other_rows_or_threads(isa: str, norm: str) -> None:
    x, scale, _ = random_rows(7, 3, 50)
    kernel = getattr(k, norm)
    whole = np.empty_like(x)
    kernel(isa, x, whole, scale, EPSILON)
    for threads in range(2, 6):
        again = np.empty_like(x)
        kernel(isa, x, again, scale, EPSILON, threads=threads)
        assert same_bits(again, whole)
    alone = np.empty_like(x[:1])
    for row in range(7):
        kernel(isa, x[row : row + 1], alone, scale, EPSILON)
        assert same_bits(alone[0], whole[row])


def test_a_row_of_zeros_stays_zero(isa: str) -> None:
    y = np.full((1, 20), np.nan, np.float32)
    k.rms_norm(isa, np.zeros((1, 20), np.float32), y, np.ones(20, np.float32), EPSILON)
    assert not y.any()
