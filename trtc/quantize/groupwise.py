"""Weights rounded to int8 or int4 by groups of input channels, when they are read and not before.

The rounding itself is C++ (cpp/src/kernels/quantize_weights.h): a float16 scale per output channel and group of
input channels, and for int4 a float16 zero point; the last group of a row may be short.
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
_CHUNK_BYTES = 32 << 20  # of float32 source rows held at a time

Int8Array = npt.NDArray[np.int8]
Float16Array = npt.NDArray[np.float16]


class QuantizedRows(NamedTuple):
    """Rows of W = q * scale in 8 bits, W = (q - zero) * scale in 4."""

    q: Int8Array  # [rows, in], in [-127, 127] or [0, 15]
    scale: Float16Array  # [rows, groups]
    zero: Float16Array | None  # [rows, groups], need not be integers; None in 8 bits


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix [out, in] rounded by groups. Reading twice quantizes twice; nothing is kept."""

    source: LazyWeight
    bits: int  # 4 or 8
    group_size: int

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def shape(self) -> tuple[int, int]:
        out_features, in_features = self.source.shape
        return out_features, in_features

    @property
    def groups(self) -> int:
        return math.ceil(self.shape[1] / self.group_size)

    def read(self) -> QuantizedRows:
        """Every row."""
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> QuantizedRows:
        """Rows ``start`` to ``stop``. The float32 source is read in chunks of rows and never held whole."""
        from trtc import _core

        in_features = self.shape[1]
        q = np.empty((stop - start, in_features), np.int8)
        halves = [np.empty((stop - start, self.groups), np.float16) for _ in range(1 if self.bits == 8 else 2)]
        chunk = max(1, _CHUNK_BYTES // (4 * in_features))
        for first in range(start, stop, chunk):
            last = min(first + chunk, stop)
            rows = np.ascontiguousarray(_read_rows(self.source, first, last), np.float32)
            try:
                q_rows, *halves_rows = _core.quantize_groupwise(rows, self.bits, self.group_size)
            except BuildError as error:
                raise BuildError(f"cannot quantize {self.name}: in its rows from {first} on, {error}") from error
            q[first - start : last - start] = q_rows
            for whole, part in zip(halves, halves_rows, strict=True):
                whole[first - start : last - start] = part.view(np.float16)
        return QuantizedRows(q, halves[0], halves[1] if self.bits == 4 else None)


def _read_rows(source: LazyWeight, first: int, last: int) -> npt.NDArray[Any]:
    return source.read() if (first, last) == (0, source.shape[0]) else source.read_rows(first, last)
