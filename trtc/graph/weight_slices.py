"""Parts of lazy weights: what a rank holds of a tensor. Nothing but the part is kept, and only while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trtc.graph.builder import LazyWeight

Array = np.ndarray[Any, Any]


def take_rows(weight: LazyWeight, ranges: Sequence[range]) -> LazyWeight:
    """These runs of rows, one after another; rows beyond the weight's last are zeros."""
    if len(ranges) == 1 and ranges[0] == range(weight.shape[0]):
        return weight
    return RowSlices(weight, tuple(ranges))


def take_columns(weight: LazyWeight, columns: range) -> LazyWeight:
    return weight if columns == range(weight.shape[1]) else ColumnSlice(weight, columns)


@dataclass(frozen=True)
class RowSlices:
    """Runs of rows of ``base``, one after another."""

    base: LazyWeight
    ranges: tuple[range, ...]

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(map(len, self.ranges)), *self.base.shape[1:])

    @property
    def dtype(self) -> str:
        return self.base.dtype

    def read(self) -> Array:
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> Array:
        parts = []
        first = 0  # row of the whole at which the run begins
        for run in self.ranges:
            low, high = max(start, first), min(stop, first + len(run))
            if low < high:
                parts.append(self._read_run(run.start + low - first, run.start + high - first))
            first += len(run)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read_run(self, start: int, stop: int) -> Array:
        end = self.base.shape[0]
        rows = self.base.read_rows(min(start, end), min(stop, end))
        missing = stop - start - len(rows)
        return rows if missing == 0 else np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


@dataclass(frozen=True)
class ColumnSlice:
    """A run of columns of ``base``."""

    base: LazyWeight
    columns: range

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.base.shape[0], len(self.columns))

    @property
    def dtype(self) -> str:
        return self.base.dtype

    def read(self) -> Array:
        return self._slice(self.base.read())

    def read_rows(self, start: int, stop: int) -> Array:
        return self._slice(self.base.read_rows(start, stop))

    def _slice(self, rows: Array) -> Array:
        return np.ascontiguousarray(rows[:, self.columns.start : self.columns.stop])
