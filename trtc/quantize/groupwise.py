"""Weights rounded to int8 or int4 by groups of input channels, when they are read and not before.

A float16 scale per output channel and group of input channels; the last group of a row may be short. What the CPU
target runs, int8 and int4 with a float16 zero point per group, is rounded in C++
(cpp/src/kernels/quantize_weights.h); symmetric int4 and whole rows are rounded here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trtc.errors import BuildError
from trtc.graph.builder import LazyWeight

QUANTIZED_META = "trtc.quantized"  # meta key of the initializers of values, scales and zeros: their QuantizedWeight
_CORE_GROUPS = (32, 64, 128)  # group sizes of the C++ kernels
_CHUNK_BYTES = 32 << 20  # of float32 source rows held at a time

Int8Array = npt.NDArray[np.int8]
Float16Array = npt.NDArray[np.float16]


class QuantizedRows(NamedTuple):
    """Rows of W = q * scale, or of W = (q - zero) * scale."""

    q: Int8Array  # [rows, in], in [-127, 127]; in 4 bits [0, 15], symmetric [-7, 7]
    scale: Float16Array  # [rows, groups]
    zero: Float16Array | None  # [rows, groups], need not be integers; None where symmetric


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix [out, in] rounded by groups. Reading twice quantizes twice; nothing is kept."""

    source: LazyWeight
    bits: int  # 4 or 8
    group_size: int
    symmetric: bool = False  # always so in 8 bits

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def shape(self) -> tuple[int, int]:
        out_features, in_features = self.source.shape
        return out_features, in_features

    @property
    def has_zero_point(self) -> bool:
        return self.bits == 4 and not self.symmetric

    @property
    def groups(self) -> int:
        return math.ceil(self.shape[1] / self.group_size)

    def read(self) -> QuantizedRows:
        """Every row."""
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> QuantizedRows:
        """Rows ``start`` to ``stop``. The float32 source is read in chunks of rows and never held whole."""
        in_features = self.shape[1]
        q = np.empty((stop - start, in_features), np.int8)
        halves = [np.empty((stop - start, self.groups), np.float16) for _ in range(1 + self.has_zero_point)]
        chunk = max(1, _CHUNK_BYTES // (4 * in_features))
        for first in range(start, stop, chunk):
            last = min(first + chunk, stop)
            rows = np.ascontiguousarray(_read_rows(self.source, first, last), np.float32)
            try:
                q_rows, *halves_rows = self._round(rows)
            except BuildError as error:
                raise BuildError(f"cannot quantize {self.name}: in its rows from {first} on, {error}") from error
            q[first - start : last - start] = q_rows
            for whole, part in zip(halves, halves_rows, strict=True):
                whole[first - start : last - start] = part.view(np.float16)
        return QuantizedRows(q, halves[0], halves[1] if self.has_zero_point else None)

    def _round(self, rows: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """Values and scales of ``rows``, then zero points if it has them."""
        from trtc import _core

        if self.group_size in _CORE_GROUPS and (self.bits == 8 or self.has_zero_point):
            rounded: tuple[npt.NDArray[Any], ...] = _core.quantize_groupwise(rows, self.bits, self.group_size)
            return rounded
        assert not self.has_zero_point, "zero points need a group size of the C++ kernels"
        return _round_symmetric(rows, self.bits, self.group_size)


def _round_symmetric(rows: npt.NDArray[np.float32], bits: int, group_size: int) -> tuple[Int8Array, Float16Array]:
    """[rows, in] as integers and scales [rows, groups]: the largest magnitude of a group becomes 7, or 127."""
    count, columns = rows.shape
    top = np.float32((1 << (bits - 1)) - 1)
    groups = math.ceil(columns / group_size)
    padded = rows if columns == groups * group_size else np.pad(rows, ((0, 0), (0, groups * group_size - columns)))
    blocks = padded.reshape(count, groups, group_size)
    largest = np.abs(blocks).max(axis=2)
    with np.errstate(over="ignore"):
        scale = (largest / top).astype(np.float16)
    if not np.isfinite(scale).all():
        raise BuildError(
            f"a weight is {largest.max():g}: int{bits} needs finite weights below {65520 * top:.0f} in magnitude, or "
            "their float16 scale overflows; check the checkpoint or build without quantization"
        )
    inverse = np.divide(np.float32(1), scale.astype(np.float32), out=np.zeros_like(largest), where=scale > 0)
    q = np.clip(np.rint(blocks * inverse[:, :, None]), -top, top).astype(np.int8)
    return np.ascontiguousarray(q.reshape(count, -1)[:, :columns]), scale


def _read_rows(source: LazyWeight, first: int, last: int) -> npt.NDArray[Any]:
    return source.read() if (first, last) == (0, source.shape[0]) else source.read_rows(first, last)
