"""Weights rounded to int8 or int4 by groups of input channels, when they are read and not before.

The rounding itself is C++ (cpp/src/kernels/quantize_weights.h): symmetric, one float16 scale per output
channel and group of input channels; the last group of a row may be short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trtc.errors import BuildError
from trtc.graph.builder import LazyWeight

QUANTIZED_META = "trtc.quantized"  # meta key of both initializers, values and scales: their QuantizedWeight
_CHUNK_BYTES = 32 << 20  # of float32 source rows held at a time

Int8Array = npt.NDArray[np.int8]
Float16Array = npt.NDArray[np.float16]


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix [out, in] as integers and scales: W = q * scale. Reading twice quantizes twice; nothing is kept."""

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

    def read(self) -> tuple[Int8Array, Float16Array]:
        """q int8 [out, in] (int4 in [-8, 7]) and scale float16 [out, groups], which may be negative."""
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> tuple[Int8Array, Float16Array]:
        """Rows ``start`` to ``stop`` of both. The float32 source is read in chunks of rows and never held whole."""
        from trtc import _core

        in_features = self.shape[1]
        q = np.empty((stop - start, in_features), np.int8)
        scale = np.empty((stop - start, self.groups), np.float16)
        chunk = max(1, _CHUNK_BYTES // (4 * in_features))
        for first in range(start, stop, chunk):
            last = min(first + chunk, stop)
            rows = np.ascontiguousarray(_read_rows(self.source, first, last), np.float32)
            try:
                q_rows, scale_bits = _core.quantize_groupwise(rows, self.bits, self.group_size)
            except BuildError as error:
                raise BuildError(f"cannot quantize {self.name}: in its rows from {first} on, {error}") from error
            q[first - start : last - start] = q_rows
            scale[first - start : last - start] = scale_bits.view(np.float16)
        return q, scale


def _read_rows(source: LazyWeight, first: int, last: int) -> npt.NDArray[Any]:
    return source.read() if (first, last) == (0, source.shape[0]) else source.read_rows(first, last)
