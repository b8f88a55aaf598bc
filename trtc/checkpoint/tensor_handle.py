"""``TensorHandle``: one stored tensor, named as Hugging Face names it and read only when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]  # stage, done, total


class TensorHandle(Protocol):
    """A tensor in a memory-mapped file. Reading twice reads the file twice; nothing is cached.

    Arrays may be read-only views of the mapping. ``dtype`` names the numpy dtype that ``read`` gives ("bfloat16" is
    ``ml_dtypes.bfloat16``); ``storage`` is the file's own word for how the values are stored (BF16, Q4_K, ...).
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def storage(self) -> str: ...

    def read(self) -> Array:
        """The whole tensor, ``shape``."""
        ...

    def read_rows(self, start: int, stop: int) -> Array:
        """Rows ``start`` to ``stop`` of the first dimension, touching only those in the file."""
        ...


@dataclass(frozen=True)
class WrappedTensor:
    """Base of handles that change what another handle reads."""

    base: TensorHandle

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def dtype(self) -> str:
        return self.base.dtype

    @property
    def storage(self) -> str:
        return self.base.storage


@dataclass(frozen=True)
class Transposed(WrappedTensor):
    """A matrix whose file stores it the other way round."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape[::-1]

    def read(self) -> Array:
        values: Array = self.base.read().T
        return values

    def read_rows(self, start: int, stop: int) -> Array:
        check_rows(self.name, self.shape, start, stop)
        values: Array = self.base.read()[:, start:stop].T
        return values


def check_rows(name: str, shape: tuple[int, ...], start: int, stop: int) -> None:
    """Rows asked for must exist: a wrong range is a bug of the caller, not of the file."""
    if not shape or not 0 <= start <= stop <= shape[0]:
        raise IndexError(f"tensor {name}: rows {start}:{stop} of shape {list(shape)}")


def first_not_finite(values: Array) -> tuple[tuple[int, ...], str] | None:
    """Index and kind ("NaN" or "Inf") of the first value that is not finite, or None."""
    if values.size == 0:
        return None
    if values.dtype.name == "bfloat16":
        bad = (values.view(np.uint16) & 0x7F80) == 0x7F80  # all exponent bits set
        if not bad.any():
            return None
    elif np.isfinite(values.min()) and np.isfinite(values.max()):  # both propagate NaN, neither allocates
        return None
    else:
        bad = ~np.isfinite(values)
    where = np.unravel_index(int(np.argmax(bad)), values.shape)
    index = tuple(int(i) for i in where)
    return index, "NaN" if np.isnan(float(values[index])) else "Inf"
