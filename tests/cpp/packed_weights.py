"""Packed weights of every format beside what they stand for, and strided int8 rows inside guarded memory."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from trtc import _core, _test_kernels

FORMATS = ["f32", "bf16", "i8", "i4"]
QUANTIZED = ["i8", "i4"]
_GUARD = 99


@dataclass(frozen=True)
class Weight:
    """A packed [n, k] matrix. ``dense`` is its value; the rest only where it is quantized."""

    format: str
    n: int
    k: int
    group: int
    packed: _test_kernels.PackedWeight
    dense: np.ndarray  # float32 [n, k]
    q: np.ndarray | None = None  # int8 [n, k]
    scale: np.ndarray | None = None  # float32 [n, groups]
    zero: np.ndarray | None = None  # float32 [n, groups], zeros for i8

    @property
    def groups(self) -> int:
        return -(-self.k // self.group)


def blob_for(format: str, n: int, k: int, group: int) -> np.ndarray:
    """Full of rubbish, so that whatever packing leaves out shows."""
    return np.full(_core.packed_layout(format, n, k, group)["total_bytes"], 0xA5, np.uint8)


def random_weight(format: str, n: int, k: int, group: int = 32, seed: int = 0) -> Weight:
    w = np.random.default_rng((seed, n, k)).normal(0, 0.5, (n, k)).astype(np.float32)
    if format in QUANTIZED:
        q, *halves = _core.quantize_groupwise(w, 8 if format == "i8" else 4, group)
        return quantized_weight(format, q, *(half.view(np.float16) for half in halves), group=group)
    blob = blob_for(format, n, k, group)
    if format == "f32":
        _core.pack_f32(w, blob)
    else:
        rounded = w.astype(ml_dtypes.bfloat16)
        _core.pack_bf16(rounded.view(np.uint16), blob)
        w = rounded.astype(np.float32)
    return Weight(format, n, k, group, _test_kernels.PackedWeight(format, n, k, group, blob), w)


def quantized_weight(
    format: str, q: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, *, group: int
) -> Weight:
    """From q int8 [n, k] and float16 scales and, for i4, zeros [n, groups]."""
    n, k = q.shape
    blob = blob_for(format, n, k, group)
    if format == "i8":
        assert zero is None
        _core.pack_i8(q, scale.view(np.uint16), group, blob)
    else:
        assert zero is not None
        _core.pack_i4(q, scale.view(np.uint16), zero.view(np.uint16), group, blob)
    wide = scale.astype(np.float32)
    wide_zero = np.zeros_like(wide) if zero is None else zero.astype(np.float32)
    # q, scale and zero have so few bits that float64 holds the exact value; kernels round it once.
    steps, shift = (np.repeat(part.astype(np.float64), group, axis=1)[:, :k] for part in (wide, wide_zero))
    dense = ((q - shift) * steps).astype(np.float32)
    packed = _test_kernels.PackedWeight(format, n, k, group, blob)
    return Weight(format, n, k, group, packed, dense, q, wide, wide_zero)


class GuardedBytes:
    """int8 [rows, cols] at an odd offset with gaps between rows; everything around holds a pattern."""

    def __init__(self, rows: int, cols: int) -> None:
        self._buffer = np.full(3 + rows * (cols + 5) + 64, _GUARD, np.int8)
        self.rows = self._buffer[3 : 3 + rows * (cols + 5)].reshape(rows, cols + 5)[:, :cols]

    def assert_guards_intact(self) -> None:
        values = self.rows.copy()
        self.rows[...] = _GUARD
        assert np.all(self._buffer == _GUARD), "memory outside the rows was written"
        self.rows[...] = values


def guarded_bytes(values: np.ndarray) -> GuardedBytes:
    guarded = GuardedBytes(*values.shape)
    guarded.rows[...] = values
    return guarded
