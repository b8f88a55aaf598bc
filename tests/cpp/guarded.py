"""Strided rows inside guarded memory, so that a kernel's every stray read or write shows."""

from __future__ import annotations

import numpy as np

from trtc import _test_kernels

EPS = 2.0**-24  # half a unit in the last place of float32: the relative error of one rounding
ISAS = _test_kernels.available_isas()
_GUARD = np.uint32(0x7FC0DEAD)  # a NaN: reading it poisons the result


class GuardedRows:
    """float32 [rows, cols] at an odd offset with gaps between rows; everything around is a NaN pattern."""

    def __init__(self, values: np.ndarray, gap: int = 3, offset: int = 1) -> None:
        rows, cols = values.shape
        self._buffer = np.full(offset + rows * (cols + gap) + 16, _GUARD, dtype=np.uint32)
        floats = self._buffer.view(np.float32)[offset : offset + rows * (cols + gap)]
        self.rows = floats.reshape(rows, cols + gap)[:, :cols]
        self.rows[...] = values

    @classmethod
    def unset(cls, rows: int, cols: int, gap: int = 5, offset: int = 3) -> GuardedRows:
        """Rows that a kernel is to fill; still NaN where it did not."""
        return cls(np.full((rows, cols), np.nan, np.float32), gap, offset)

    def assert_guards_intact(self) -> None:
        values = self.rows.copy()
        self.rows.view(np.uint32)[...] = _GUARD
        assert np.all(self._buffer == _GUARD), "memory outside the rows was written"
        self.rows[...] = values


def assert_within(actual: np.ndarray, expected: np.ndarray, bound: np.ndarray | float) -> None:
    """|actual - expected| <= bound, element by element; NaN never passes."""
    error = np.abs(actual.astype(np.float64) - expected)
    bad = ~(error <= bound)
    if np.any(bad):
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        limit = np.broadcast_to(bound, error.shape)[at]
        raise AssertionError(
            f"{int(bad.sum())} elements off; first at {at}: {actual[at]} vs {expected[at]} +- {limit:g}"
        )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()
