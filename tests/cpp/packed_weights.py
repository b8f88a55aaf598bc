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
    """A packed [n, k] matrix. ``dense`` is its exact value; q and scale only where it is quantized."""

    format: str
    n: int
    k: int
    group: int
    packed: _test_kernels.PackedWeight
    dense: np.ndarray  # float32 [n, k]
    q: np.ndarray | None = None  # int8 [n, k]
    scale: np.ndarray | None = None  # float32 [n, groups]

    @property
    def groups(self) -> int:
        return -(-self.k // self.group)


def blob_for(format: str, n: int, k: int, group: int) -> np.ndarray:
    """Full of rubbish, so that whatever packing leaves out shows."""
    return np.full(_core.packed_layout(format, n, k, group)["total_bytes"], 0xA5, np.uint8)


def random_weight(format: str, n: int, k: int, group: int = 32, seed: int = 0) -> Weight:
    w = np.random.default_rng((seed, n, k)).normal(0, 0.5, (n, k)).astype(np.float32)
    if format in QUANTIZED:
        q, scale_bits = _core.quantize_groupwise(w, 8 if format == "i8" else 4, group)
        return quantized_weight(format, q, scale_bits.view(np.float16), group)
    blob = blob_for(format, n, k, group)
    if format == "f32":
        _core.pack_f32(w, blob)
    else:
        rounded = w.astype(ml_dtypes.bfloat16)
        _core.pack_bf16(rounded.view(np.uint16), blob)
        w = rounded.astype(np.float32)
    return Weight(format, n, k, group, _test_kernels.PackedWeight(format, n, k, group, blob), w)


def quantized_weight(format: str, q: np.ndarray, scale: np.ndarray, group: int) -> Weight:
    """From q int8 [n, k] and float16 scales [n, groups]."""
    n, k = q.shape
    blob = blob_for(format, n, k, group)
    _core.pack_quantized(q, scale.view(np.uint16), format, group, blob)
    wide = scale.astype(np.float32)
    dense = q * np.repeat(wide, group, axis=1)[:, :k]
    return Weight(format, n, k, group, _test_kernels.PackedWeight(format, n, k, group, blob), dense, q, wide)


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
