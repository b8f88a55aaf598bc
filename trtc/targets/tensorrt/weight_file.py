"""A graph's weights in the types of a TensorRT network, in one scratch file that the building process maps.

So the weights are read from the checkpoint once, row by row, and are never in memory as a whole: what TensorRT is given
are pages of this file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from trtc.errors import BuildError
from trtc.graph import contract
from trtc.graph.builder import WEIGHT_META
from trtc.graph.shapes import INT4, INT8, value_type
from trtc.passes.rewriting import is_op, static_shape
from trtc.quantize.groupwise import QUANTIZED_META, QuantizedRows, QuantizedWeight
from trtc.targets.base import PACK_WEIGHTS, Progress

Array = npt.NDArray[Any]

_ALIGN = 256
_CHUNK_BYTES = 32 << 20  # of float32 source rows
_NUMPY = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}
_NORMS = ("RMSNormalization", "LayerNormalization", "AddRMSNormalization", "AddLayerNormalization")

VOCABULARY, ATTENTION, MLP, SMALL = "embedding and logits", "attention", "mlp", "norms, biases and tables"


@dataclass(frozen=True)
class StoredWeight:
    """Where a weight lies in the file. ``dtype``: float32, float16, bfloat16, int8 or int4 (two in a byte)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    group: str  # what people call it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> StoredWeight:
        return StoredWeight(**{**values, "shape": tuple(values["shape"])})


def write_weights(model: ir.Model, dtype: str, path: Path, progress: Progress | None = None) -> list[StoredWeight]:
    """Write every float or quantized initializer of more than one element; ``dtype`` is the engine's.

    Raises CheckpointError when a tensor is not finite, BuildError when one does not fit float16, and OSError.
    """
    values = [value for value in model.graph.initializers.values() if _is_weight(value)]
    stored: list[StoredWeight] = []
    rounded = _LastRounded()
    with path.open("wb") as file:
        for done, value in enumerate(values):
            file.seek(-(-file.tell() // _ALIGN) * _ALIGN)
            offset, name = file.tell(), value.name or ""
            storage = _storage_dtype(value, dtype)
            for rows in _rows(value, rounded):
                _write(file, name, rows, storage)
            shape = static_shape(value)
            assert shape is not None
            stored.append(StoredWeight(name, storage, shape, offset, file.tell() - offset, _group(value)))
            if progress is not None:
                progress(PACK_WEIGHTS, done + 1, len(values))
    return stored


class WeightFile:
    """The file as the building process sees it: addresses of mapped pages, valid while this object lives."""

    def __init__(self, path: Path, stored: list[StoredWeight]) -> None:
        self._entries = {entry.name: entry for entry in stored}
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if stored else None
        self._base = np.frombuffer(self._map, np.uint8).ctypes.data if self._map is not None else 0

    def find(self, name: str) -> tuple[StoredWeight, int] | None:
        """An entry and the address of its bytes."""
        entry = self._entries.get(name)
        return None if entry is None else (entry, self._base + entry.offset)


class _LastRounded:
    """The values and scales of a quantized weight are two initializers, one after the other: round once for both."""

    def __init__(self) -> None:
        self._last: tuple[QuantizedWeight, QuantizedRows] | None = None

    def part(self, weight: QuantizedWeight, value: ir.Value) -> Array:
        if self._last is None or self._last[0] is not weight:
            self._last = (weight, weight.read())
        rows = self._last[1]
        return rows.q if value.dtype in (INT8, INT4) else rows.scale


def _is_weight(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.size > 1 and value.dtype != ir.DataType.INT64


def _storage_dtype(value: ir.Value, dtype: str) -> str:
    """Norms compute in float32 and rotation has its tables so; scales of int8 are float32, all else the engine's."""
    if value.dtype in (INT8, INT4):
        return "int8" if value.dtype == INT8 else "int4"
    for node, index in value.uses():
        if (node.op_type in _NORMS and index > 0) or node.op_type == "RotaryEmbedding":
            return "float32"
        if is_op(node, "DequantizeLinear") and index == 1:
            quantized = node.inputs[0]
            return "float32" if quantized is not None and quantized.dtype == INT8 else dtype
    return dtype


def _rows(value: ir.Value, rounded: _LastRounded) -> Iterator[Array]:
    """The values in order, some rows at a time."""
    quantized = value.meta.get(QUANTIZED_META)
    if quantized is not None:
        yield rounded.part(quantized, value)
        return
    weight = value.meta.get(WEIGHT_META)
    if weight is None:
        assert value.const_value is not None
        yield value.const_value.numpy()
        return
    columns = int(np.prod(weight.shape[1:]))
    step = max(1, _CHUNK_BYTES // (4 * columns))
    if step >= weight.shape[0]:
        yield weight.read()
        return
    for start in range(0, weight.shape[0], step):
        yield weight.read_rows(start, min(start + step, weight.shape[0]))


def _write(file: BinaryIO, name: str, rows: Array, storage: str) -> None:
    if storage == "int4":
        flat = np.ascontiguousarray(rows).astype(np.int8).reshape(-1) & 0x0F
        file.write((flat[0::2] | (flat[1::2] << 4)).astype(np.uint8).data)
        return
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(rows).astype(_NUMPY[storage], copy=False)
    if storage == "float16" and not np.isfinite(stored).all():
        largest = np.abs(rows.astype(np.float32)).max()
        raise BuildError(f"tensor {name} holds {largest:g}, beyond float16's 65504; build with dtype bfloat16")
    file.write(stored.reshape(-1).view(np.uint8).data)


def _group(value: ir.Value) -> str:
    shape = value.shape
    if value.dtype not in (INT8, INT4) and shape is not None and len(shape) == 1:
        return SMALL
    for node, _ in value.uses():
        if is_op(node, "Gather") and node.inputs[1] is not None:
            return VOCABULARY if node.inputs[1].name == contract.INPUT_IDS.name else SMALL
        if node.op_type in _NORMS or node.op_type == "RotaryEmbedding":
            return SMALL
        if is_op(node, "Gemm") and value_type(node.outputs[0]).shape[0] == contract.LOGIT_ROWS:
            return VOCABULARY
    return ATTENTION if "attn" in (value.name or "") else MLP
