"""``QuantizedWeight`` against the same rounding in numpy, bit for bit; it never holds a whole float weight."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.quantized_values import values_of
from trtc import _core
from trtc.errors import BuildError
from trtc.quantize import groupwise
from trtc.quantize.groupwise import QuantizedWeight

INT4_STEPS = (15.0, 15.5, 16.0, 16.5, 17.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0)  # quantize_weights.h
F32 = np.float32


def reference(w, bits, group):
    """The algorithm at the top of cpp/src/kernels/quantize_weights.h: q int8 [n, k], scale and zero [n, groups]."""
    n, k = w.shape
    groups = -(-k // group)
    last = (groups - 1) * group
    filled = np.concatenate([w[:, :last], np.resize(w[:, last:].T, (group, n)).T], axis=1)  # repeats a short group
    blocks = filled.reshape(n, groups, group)
    scale, zero = int8_rounding(blocks) if bits == 8 else int4_rounding(blocks)
    q = rounded(blocks, scale, zero, *((-127, 127) if bits == 8 else (0, 15)))
    return q.astype(np.int8).reshape(n, -1)[:, :k], scale, zero


def int8_rounding(blocks):
    scale = covering_scale(np.abs(blocks).max(axis=2), F32(127))
    return scale, np.zeros_like(scale)


def int4_rounding(blocks):
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    best = None
    for steps in INT4_STEPS:
        scale = covering_scale(high - low, F32(15)) if best is None else ((high - low) / F32(steps)).astype(np.float16)
        zero = (divide(-low, scale) - F32(max(0, steps - 15) / 2)).astype(np.float16)
        zero[scale == 0] = 0
        error = squared_error(blocks, scale, zero)
        if best is None:
            best = scale, zero, error
            continue
        better = (scale != 0) & (error < best[2])
        best = tuple(np.where(better, new, old) for new, old in zip((scale, zero, error), best, strict=True))
    return best[:2]


def divide(x, scale):
    """x / scale, and 0 where the scale is."""
    wide = scale.astype(F32)
    return np.divide(x, wide, out=np.zeros_like(wide), where=wide != 0)


def covering_scale(span, steps):
    scale = (span / steps).astype(np.float16)
    clips = span > (steps + F32(0.5)) * scale.astype(F32)
    return (scale.view(np.uint16) + clips.astype(np.uint16)).view(np.float16)


def rounded(blocks, scale, zero, low, high):
    inverse = divide(np.ones(scale.shape, F32), scale)[:, :, None]
    return np.clip(np.rint(blocks * inverse + zero.astype(F32)[:, :, None]), F32(low), F32(high))


def squared_error(blocks, scale, zero):
    """Sixteen running sums, then added by halves."""
    wide_scale, wide_zero = scale.astype(F32)[:, :, None], zero.astype(F32)[:, :, None]
    error = blocks - (rounded(blocks, scale, zero, 0, 15) - wide_zero) * wide_scale
    lanes = np.zeros((*blocks.shape[:2], 16), F32)
    for start in range(0, blocks.shape[2], 16):
        lanes += error[:, :, start : start + 16] * error[:, :, start : start + 16]
    while lanes.shape[2] > 1:
        half = lanes.shape[2] // 2
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


class ArrayWeight:
    """A weight in memory that records which rows are read."""

    name, dtype = "layers.0.mlp.weight", "float32"

    def __init__(self, array):
        self.array, self.shape, self.reads = array, array.shape, []

    def read(self):
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start, stop):
        self.reads.append((start, stop))
        return self.array[start:stop]


def normal(n, k, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k)).astype(F32)


def weights_of_every_kind():
    spread = normal(9, 160) * np.exp2(np.random.default_rng(1).integers(-30, 9, (9, 160))).astype(F32)
    tiny = normal(4, 64) * F32(1e-6)
    zeros = np.zeros((3, 70), F32)
    ties = np.tile(np.array([4, -4, 0.5, -0.5, 1.5, 2.5], F32), (2, 11))
    return {"normal": normal(17, 128), "short group": normal(5, 70, 2), "spread": spread, "tiny": tiny} | {
        "zeros": zeros,
        "ties": ties,
        "one column": normal(6, 1),
    }


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("kind", weights_of_every_kind())
def test_every_bit_equals_the_numpy_reference(bits, group, kind):
    w = weights_of_every_kind()[kind]
    q, scale, zero = QuantizedWeight(ArrayWeight(w), bits, group).read()
    want_q, want_scale, want_zero = reference(w, bits, group)
    np.testing.assert_array_equal(scale.view(np.uint16), want_scale.view(np.uint16))
    np.testing.assert_array_equal(q, want_q)
    if bits == 4:
        np.testing.assert_array_equal(zero, want_zero)
    else:
        assert zero is None


@pytest.mark.parametrize("bits", [4, 8])
def test_no_weight_moves_by_more_than_half_a_step_unless_clipped(bits):
    w = normal(40, 96)
    rows = QuantizedWeight(ArrayWeight(w), bits, 32).read()
    step = np.repeat(rows.scale.astype(F32), 32, axis=1)
    inside = (rows.q > (-127 if bits == 8 else 0)) & (rows.q < (127 if bits == 8 else 15))
    error = np.abs(w - values_of(rows, 32))
    assert (error <= step * 0.501)[inside].all()
    assert np.sqrt(np.mean(error**2)) < (0.01 if bits == 8 else 0.12)


@pytest.mark.parametrize("bits", [4, 8])
def test_reading_in_chunks_gives_the_same_and_asks_for_few_rows_at_a_time(bits, monkeypatch):
    source = ArrayWeight(normal(50, 70))
    whole = QuantizedWeight(source, bits, 32).read()
    monkeypatch.setattr(groupwise, "_CHUNK_BYTES", 4 * 70 * 16)
    source.reads.clear()
    parts = QuantizedWeight(source, bits, 32).read()
    assert source.reads == [(0, 16), (16, 32), (32, 48), (48, 50)]
    for got, want in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(got, want)


def test_rows_are_those_of_the_whole():
    weight = QuantizedWeight(ArrayWeight(normal(20, 64)), 4, 32)
    for part, whole in zip(weight.read_rows(3, 11), weight.read(), strict=True):
        np.testing.assert_array_equal(part, whole[3:11])


def test_bfloat16_weights_are_widened_first():
    w = normal(8, 64).astype(ml_dtypes.bfloat16)
    rows = QuantizedWeight(ArrayWeight(w), 8, 32).read()
    want_q, want_scale, _ = reference(w.astype(F32), 8, 32)
    np.testing.assert_array_equal(rows.q, want_q)
    np.testing.assert_array_equal(rows.scale, want_scale)


def test_nothing_is_kept_between_reads():
    source = ArrayWeight(normal(4, 32))
    weight = QuantizedWeight(source, 8, 32)
    weight.read()
    weight.read()
    assert len(source.reads) == 2


def test_weight_beyond_float16_scales_is_refused_by_name():
    w = normal(3, 32)
    w[1, 5] = 1e9
    with pytest.raises(BuildError, match=r"layers\.0\.mlp\.weight.*1e\+09"):
        QuantizedWeight(ArrayWeight(w), 8, 32).read()


def test_thread_counts_agree():
    w = normal(33, 96)
    one, two = _core.quantize_groupwise(w, 4, 32, 1), _core.quantize_groupwise(w, 4, 32, 2)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (4, 160), (8, 160)])
@pytest.mark.parametrize("kind", ["normal", "spread", "zeros"])
def test_symmetric_rounding_moves_no_weight_by_more_than_half_a_step(bits, group, kind):
    w = {"normal": normal(9, 160), "spread": weights_of_every_kind()["spread"], "zeros": np.zeros((9, 160), F32)}[kind]
    rows = QuantizedWeight(ArrayWeight(w), bits, group, symmetric=True).read()
    top = 7 if bits == 4 else 127
    assert rows.zero is None and rows.scale.shape == (9, -(-160 // group)) and np.abs(rows.q).max() <= top
    step = np.repeat(rows.scale.astype(F32), group, axis=1)[:, :160]
    smallest = 2.0**-24 * top  # of float16 scales
    assert (np.abs(w - rows.q * step) <= step * 0.51 + smallest).all()


def test_symmetric_rounding_refuses_what_its_scale_cannot_hold():
    w = normal(4, 64)
    w[2, 3] = 1e6
    with pytest.raises(BuildError, match=r"a weight is 1e\+06: int4 needs finite weights below 458640 in magnitude"):
        QuantizedWeight(ArrayWeight(w), 4, 64, symmetric=True).read()
