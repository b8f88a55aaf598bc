"""Linear layers with float activations: every instruction set and weight format against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cpp.guarded import EPS, ISAS, GuardedRows, assert_within, same_bits
from tests.cpp.packed_weights import FORMATS, Weight, random_weight
from trtc import _test_kernels as kernels

# rows, n, k, group
SHAPES = [
    (1, 1, 1, 32),
    (1, 16, 32, 32),
    (2, 17, 33, 32),
    (3, 15, 7, 64),
    (4, 70, 96, 32),
    (5, 48, 130, 128),
    (8, 100, 64, 64),
    (13, 33, 257, 32),
    (21, 5, 290, 128),
]


def random_rows(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((7, seed, rows, cols)).normal(0, 1, (rows, cols)).astype(np.float32)


def linear(isa: str, weight: Weight, x: np.ndarray, bias: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """y [rows, n]; fails if memory around y was written. Reads past x meet NaN."""
    source, y = GuardedRows(x), GuardedRows.unset(len(x), weight.n)
    b = None if bias is None else GuardedRows(bias[None]).rows[0]
    kernels.linear(isa, weight.packed, y.rows, x=source.rows, bias=b, threads=threads)
    y.assert_guards_intact()
    return y.rows.copy()


def rounds_activations(isa: str, format: str) -> bool:
    return isa == "avx512_bf16" and format == "bf16"


@pytest.mark.parametrize("isa", ["reference", *ISAS])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_matches_float64(isa: str, format: str, shape: tuple[int, int, int, int], with_bias: bool) -> None:
    rows, n, k, group = shape
    weight, x = random_weight(format, n, k, group), random_rows(rows, k)
    bias = random_rows(1, n, seed=1)[0] if with_bias else None
    y = linear(isa, weight, x, bias)
    exact_x = x.astype(ml_dtypes.bfloat16) if rounds_activations(isa, format) else x
    exact_x, w = exact_x.astype(np.float64), weight.dense.astype(np.float64)
    shift = 0 if bias is None else bias.astype(np.float64)
    # k roundings of partial sums no larger than the sum of magnitudes, and the bias.
    bound = (k + 1) * EPS * (np.abs(exact_x) @ np.abs(w).T) * (1 + 1e-4) + EPS * np.abs(exact_x @ w.T + shift)
    assert_within(y, exact_x @ w.T + shift, bound)


@pytest.mark.parametrize(("isa", "format"), [(i, f) for i in ISAS for f in FORMATS if not rounds_activations(i, f)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_instruction_set_gives_the_bits_of_the_reference(
    isa: str, format: str, shape: tuple[int, int, int, int]
) -> None:
    rows, n, k, group = shape
    weight, x, bias = random_weight(format, n, k, group), random_rows(rows, k), random_rows(1, n, seed=1)[0]
    assert same_bits(linear(isa, weight, x, bias), linear("reference", weight, x, bias))


@pytest.mark.skipif("avx512_bf16" not in ISAS, reason="needs AVX-512 BF16")
@pytest.mark.parametrize(("rows", "n", "k", "group"), SHAPES)
def test_bfloat16_dot_products_add_the_odd_then_the_even_product_of_each_pair(
    rows: int, n: int, k: int, group: int
) -> None:
    weight, x = random_weight("bf16", n, k, group), random_rows(rows, k)
    acc = np.zeros((rows, n), np.float32)
    rounded, w = x.astype(ml_dtypes.bfloat16).astype(np.longdouble), weight.dense.astype(np.longdouble)
    for pair in range(0, k, 2):
        for i in range(min(pair + 1, k - 1), pair - 1, -1):
            acc = (rounded[:, None, i] * w[None, :, i] + acc).astype(np.float32)
    np.testing.assert_array_equal(linear("avx512_bf16", weight, x), acc)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("rows", [2, 7, 16, 35])
def test_a_row_has_the_same_bits_alone_and_among_others_on_any_number_of_threads(
    isa: str, format: str, n: int, rows: int
) -> None:
    weight, x, bias = random_weight(format, n, 203), random_rows(rows, 203), random_rows(1, n, seed=1)[0]
    alone = np.concatenate([linear(isa, weight, x[i : i + 1], bias) for i in range(rows)])
    for threads in [1, 2, 3, 5]:
        assert same_bits(linear(isa, weight, x, bias, threads), alone)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_row_of_nan_poisons_no_other_row(isa: str, format: str) -> None:
    weight, x = random_weight(format, 40, 100), random_rows(9, 100)
    clean = linear(isa, weight, x)
    x[4] = np.nan
    y = linear(isa, weight, x)
    assert np.isnan(y[4]).all()
    assert same_bits(np.delete(y, 4, axis=0), np.delete(clean, 4, axis=0))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_zeros_give_the_bias(isa: str, format: str) -> None:
    weight, bias = random_weight(format, 19, 65), random_rows(1, 19)[0]
    np.testing.assert_array_equal(linear(isa, weight, np.zeros((3, 65), np.float32), bias), np.tile(bias, (3, 1)))
    np.testing.assert_array_equal(linear(isa, weight, np.zeros((3, 65), np.float32)), np.zeros((3, 19)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("threads", [1, 3])
def test_embedding_gives_rows_of_the_matrix(isa: str, format: str, group: int, threads: int) -> None:
    table = random_weight(format, 37, 131, group)
    ids = np.array([0, 36, 15, 16, 7, 7, 31], np.int32)
    y = GuardedRows.unset(len(ids), table.k)
    kernels.embedding(isa, table.packed, ids, y.rows, threads=threads)
    y.assert_guards_intact()
    np.testing.assert_array_equal(y.rows, table.dense[ids])
