"""Weights that are made of other weights and, like them, are read only when asked and never kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from trtc.graph.builder import WEIGHT_META, LazyWeight, weight_initializer
from trtc.passes.rewriting import static_shape, unique_name

Array = npt.NDArray[Any]


def weight_of(value: ir.Value | None) -> LazyWeight:
    """The lazy weight behind an initializer: the checkpoint's own, or a view of its tensor."""
    assert value is not None and value.is_initializer(), "only initializers are weights"
    weight: LazyWeight | None = value.meta.get(WEIGHT_META)
    return weight if weight is not None else InitializerWeight(value)


def add_weight(graph: ir.Graph, weight: LazyWeight, wanted: str) -> ir.Value:
    """A new lazy float32 initializer that reads ``weight``."""
    value = weight_initializer(weight, unique_name(graph, wanted))
    graph.register_initializer(value)
    return value


def concat_rows(values: Sequence[ir.Value | None]) -> LazyWeight:
    """The initializers one under the other: [sum of rows, ...]. One alone stays itself."""
    parts = tuple(weight_of(value) for value in values)
    return parts[0] if len(parts) == 1 else ConcatenatedWeight(parts)


@dataclass(frozen=True)
class InitializerWeight:
    """A constant that the graph holds itself."""

    value: ir.Value

    @property
    def name(self) -> str:
        return self.value.name or ""

    @property
    def shape(self) -> tuple[int, ...]:
        shape = static_shape(self.value)
        assert shape is not None, f"initializer {self.name} has no static shape"
        return shape

    @property
    def dtype(self) -> str:
        return "float32"

    def read(self) -> Array:
        assert self.value.const_value is not None
        return np.asarray(self.value.const_value.numpy(), np.float32)

    def read_rows(self, start: int, stop: int) -> Array:
        return self.read()[start:stop]


@dataclass(frozen=True)
class ConcatenatedWeight:
    """Weights stacked along their first axis. Reading holds the result and one part at a time."""

    parts: tuple[LazyWeight, ...]

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> str:
        return "bfloat16" if all(part.dtype == "bfloat16" for part in self.parts) else "float32"

    def read(self) -> Array:
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, *self.shape[1:]), ml_dtypes.bfloat16 if self.dtype == "bfloat16" else np.float32)
        first = 0  # row of the whole at which the part begins
        for part in self.parts:
            low, high = max(start, first), min(stop, first + part.shape[0])
            if low < high:
                whole = (low, high) == (first, first + part.shape[0])
                out[low - start : high - start] = part.read() if whole else part.read_rows(low - first, high - first)
            first += part.shape[0]
        return out
