"""Linear layers with int8 activations: every bit against the stated model, and the rounding of the activations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpp.guarded import ISAS, GuardedRows, same_bits
from tests.cpp.packed_weights import QUANTIZED, GuardedBytes, Weight, guarded_bytes, quantized_weight, random_weight
from trtc import _test_kernels as kernels

SHAPES = [(1, 1, 1, 32), (1, 64, 64, 64), (2, 17, 33, 32), (5, 48, 130, 128), (9, 100, 96, 32), (21, 5, 290, 64)]


def quantize(isa: str, x: np.ndarray, group: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """q int8 [rows, k_padded] and scale float32 [rows, groups] of a kernel; fails on stray writes."""
    rows, k = x.shape
    groups = -(-k // group)
    source, q, scale = GuardedRows(x), GuardedBytes(rows, groups * group), GuardedRows.unset(rows, groups)
    kernels.quantize_rows(isa, source.rows, q.rows, scale.rows, group, threads=threads)
    q.assert_guards_intact()
    scale.assert_guards_intact()
    return q.rows.copy(), scale.rows.copy()


def quantize_model(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    rows, k = x.shape
    padded = np.zeros((rows, -(-k // group), group), np.float32)
    padded.reshape(rows, -1)[:, :k] = x
    scale = np.abs(padded).max(axis=2) / np.float32(127)
    scale[scale < np.float32(2.0**-126)] = 0
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.rint(padded * inverse[:, :, None]).clip(-127, 127).astype(np.int8).reshape(rows, -1), scale


def linear(
    isa: str, weight: Weight, q: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, threads: int = 1
) -> np.ndarray:
    x, scales, y = guarded_bytes(q), GuardedRows(scale), GuardedRows.unset(len(q), weight.n)
    kernels.linear(isa, weight.packed, y.rows, q=x.rows, q_scales=scales.rows, bias=bias, threads=threads)
    y.assert_guards_intact()
    return y.rows.copy()


def linear_model(weight: Weight, q: np.ndarray, scale: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Exact integers inside a group, then one fused multiply-add per group (long double: 64 bits hold the product)."""
    acc = np.zeros((len(q), weight.n), np.float32)
    for g in range(weight.groups):
        part = slice(g * weight.group, min((g + 1) * weight.group, weight.k))
        total = q[:, part].astype(np.int64) @ weight.q[:, part].astype(np.int64).T
        both = scale[:, g, None] * weight.scale[None, :, g]
        if weight.format == "i4":
            x_sum = q[:, part].astype(np.int64).sum(axis=1)[:, None]
            total = (total - x_sum * weight.zero[None, :, g].astype(np.longdouble)).astype(np.float32)
        acc = (total.astype(np.longdouble) * both.astype(np.longdouble) + acc).astype(np.float32)
    return acc if bias is None else acc + bias


def random_rows(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((3, seed, rows, cols)).normal(0, 1, (rows, cols)).astype(np.float32)


@pytest.mark.parametrize("isa", ["reference", *ISAS])
@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_bit_is_the_models(isa: str, format: str, shape: tuple[int, int, int, int], with_bias: bool) -> None:
    rows, n, k, group = shape
    weight = random_weight(format, n, k, group)
    q, scale = quantize_model(random_rows(rows, k), group)
    bias = random_rows(1, n, seed=1)[0] if with_bias else None
    np.testing.assert_array_equal(linear(isa, weight, q, scale, bias), linear_model(weight, q, scale, bias))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("x_extreme", [127, -127])
def test_the_largest_sums_do_not_saturate(isa: str, format: str, group: int, x_extreme: int) -> None:
    low, high, zero = (-128, 127, None) if format == "i8" else (0, 15, np.full((4, 2), 7.5, np.float16))
    patterns = [[low], [high], [low, high], [high, high, low, low]]
    q = np.stack([np.resize(np.array(p, np.int8), 2 * group) for p in patterns])
    weight = quantized_weight(format, q, np.full((4, 2), 0.5, np.float16), zero, group=group)
    signs = np.stack([np.resize(s, 2 * group) for s in ([1], [1, -1], [1, 1, -1, -1])])
    x = (x_extreme * signs).astype(np.int8)
    scale = np.ones((3, 2), np.float32)
    expected = 0.5 * (x.astype(np.int64) @ (q.astype(np.float64) - (0 if zero is None else 7.5)).T)
    np.testing.assert_array_equal(linear(isa, weight, x, scale, None), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("rows", [2, 7, 16, 35])
def test_a_row_has_the_same_bits_alone_and_among_others_on_any_number_of_threads(
    isa: str, format: str, n: int, rows: int
) -> None:
    weight = random_weight(format, n, 203)
    q, scale = quantize_model(random_rows(rows, 203), 32)
    alone = np.concatenate([linear(isa, weight, q[i : i + 1], scale[i : i + 1], None) for i in range(rows)])
    for threads in [1, 2, 3, 5]:
        assert same_bits(linear(isa, weight, q, scale, None, threads), alone)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("k", [1, 31, 32, 77, 128, 300])
@pytest.mark.parametrize("threads", [1, 3])
def test_activations_round_as_the_model_says(isa: str, group: int, k: int, threads: int) -> None:
    x = random_rows(5, k)
    x[1] = 0
    x[2] *= 1e-41  # below the smallest normal scale: counts as zero
    x[3] *= 1e30
    x[4] = np.resize(np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5], np.float32), k)  # scale 1: ties go to even
    q, scale = quantize(isa, x, group, threads)
    want_q, want_scale = quantize_model(x, group)
    np.testing.assert_array_equal(scale, want_scale)
    np.testing.assert_array_equal(q, want_q)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_stays_visible_in_its_row_only(isa: str, poison: float) -> None:
    x = random_rows(3, 64)
    x[1, 40] = poison
    q, scale = quantize(isa, x, 32)
    assert not np.isfinite(scale[1, 1])
    assert np.isfinite(np.delete(scale, 1, axis=0)).all() and np.isfinite(scale[1, 0])
    y = linear(isa, random_weight("i8", 20, 64), q, scale, None)
    assert not np.isfinite(y[1]).any()
    assert np.isfinite(np.delete(y, 1, axis=0)).all()
