"""``QuantizedWeight`` against the same rounding in numpy, bit for bit; it never holds a whole float weight."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from trtc import _core
from trtc.errors import BuildError
from trtc.quantize import groupwise
from trtc.quantize.groupwise import QuantizedWeight

INT4_DIVISORS = (7.0, 7.25, 7.5, 7.75, 8.0, 8.25, 8.5, 8.75, 9.0, 9.5, 10.0)  # cpp/src/kernels/quantize_weights.h
F32 = np.float32


def reference(w, bits, group):
    """The algorithm at the top of cpp/src/kernels/quantize_weights.h: q int8 [n, k], scale float16 [n, groups]."""
    n, k = w.shape
    groups = -(-k // group)
    padded = np.zeros((n, groups * group), F32)
    padded[:, :k] = w
    blocks = padded.reshape(n, groups, group)
    magnitude = np.abs(blocks)
    largest = magnitude.max(axis=2)
    if bits == 8:
        scale = covering_scale(largest, F32(127))
    else:
        first = np.take_along_axis(blocks, magnitude.argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
        scale = covering_scale(largest, F32(7))
        least = squared_error(blocks, scale)
        for divisor in INT4_DIVISORS:
            candidate = (first / F32(-divisor)).astype(np.float16)
            error = squared_error(blocks, candidate)
            better = (candidate != 0) & (error < least)
            scale, least = np.where(better, candidate, scale), np.where(better, error, least)
    q = rounded(blocks, scale, *((-127, 127) if bits == 8 else (-8, 7)))
    return q.astype(np.int8).reshape(n, -1)[:, :k], scale


def covering_scale(largest, steps):
    scale = (largest / steps).astype(np.float16)
    clips = largest > (steps + F32(0.5)) * scale.astype(F32)
    return (scale.view(np.uint16) + clips.astype(np.uint16)).view(np.float16)


def rounded(blocks, scale, low, high):
    wide = scale.astype(F32)
    inverse = np.divide(F32(1), wide, out=np.zeros_like(wide), where=wide != 0)
    return np.clip(np.rint(blocks * inverse[:, :, None]), F32(low), F32(high))


def squared_error(blocks, scale):
    """Sixteen running sums, then added by halves."""
    error = blocks - rounded(blocks, scale, -8, 7) * scale.astype(F32)[:, :, None]
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
    q, scale = QuantizedWeight(ArrayWeight(w), bits, group).read()
    want_q, want_scale = reference(w, bits, group)
    np.testing.assert_array_equal(scale.view(np.uint16), want_scale.view(np.uint16))
    np.testing.assert_array_equal(q, want_q)


@pytest.mark.parametrize("bits", [4, 8])
def test_no_weight_moves_by_more_than_half_a_step_unless_clipped(bits):
    w = normal(40, 96)
    q, scale = QuantizedWeight(ArrayWeight(w), bits, 32).read()
    step = np.abs(np.repeat(scale.astype(F32), 32, axis=1))
    inside = (q > (-127 if bits == 8 else -8)) & (q < (127 if bits == 8 else 7))
    error = np.abs(w - q * np.repeat(scale.astype(F32), 32, axis=1))
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
    q, scale = weight.read()
    some_q, some_scale = weight.read_rows(3, 11)
    np.testing.assert_array_equal(some_q, q[3:11])
    np.testing.assert_array_equal(some_scale, scale[3:11])


def test_bfloat16_weights_are_widened_first():
    w = normal(8, 64).astype(ml_dtypes.bfloat16)
    q, scale = QuantizedWeight(ArrayWeight(w), 8, 32).read()
    want_q, want_scale = reference(w.astype(F32), 8, 32)
    np.testing.assert_array_equal(q, want_q)
    np.testing.assert_array_equal(scale, want_scale)


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
