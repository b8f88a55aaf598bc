"""Which weights an engine stores and how: made while lowering, read while packing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from trtc.engine.format import WeightFormat
from trtc.errors import BuildError
from trtc.graph.builder import WEIGHT_META
from trtc.quantize.groupwise import QUANTIZED_META, QuantizedRows, QuantizedWeight

Array = npt.NDArray[Any]
FloatRows = Callable[[int, int], Array]  # rows [start, stop) as float32 or bfloat16
ReadQuantized = Callable[[int, int], QuantizedRows]


@dataclass(frozen=True)
class WeightSpec:
    """One blob: an [n, k] matrix, packed, or plain float32 rows. Exactly one reader is set."""

    name: str
    format: WeightFormat
    n: int
    k: int
    group: int = 0
    read_floats: FloatRows | None = None
    read_quantized: ReadQuantized | None = None


def float_matrix(value: ir.Value, format: WeightFormat) -> WeightSpec:
    """A linear layer's or the embedding's [out, in] initializer."""
    n, k = static_shape(value)
    return WeightSpec(value.name or "", format, n, k, read_floats=_float_reader(value))


def rows_f32(value: ir.Value, max_rows: int | None = None) -> WeightSpec:
    """A vector or a table that kernels read row by row; at most the first ``max_rows`` rows."""
    shape = static_shape(value)
    if len(shape) == 1:
        reader = _float_reader(value)
        length = shape[0]
        return WeightSpec(
            value.name or "", WeightFormat.ROWS_F32, 1, length, read_floats=lambda _a, _b: reader(0, length)[None]
        )
    n = shape[0] if max_rows is None else min(shape[0], max_rows)
    return WeightSpec(value.name or "", WeightFormat.ROWS_F32, n, shape[1], read_floats=_float_reader(value))


def quantized_matrix(node: ir.Node) -> WeightSpec:
    """The [out, in] matrix that a node of ``ops.DEQUANTIZERS`` over initializers stands for."""
    values, scales = node.inputs[0], node.inputs[1]
    assert values is not None and scales is not None
    group = node.attributes["block_size"].as_int()
    n, k = static_shape(values)
    if node.op_type == "DequantizeAffine":
        format = WeightFormat.PACKED_I4  # verification has seen to its types
    elif values.dtype == ir.DataType.INT8 and scales.dtype == ir.DataType.FLOAT16:
        format = WeightFormat.PACKED_I8
    else:
        raise BuildError(
            f"DequantizeLinear {node.name}: the CPU target needs int8 with float16 scales, or DequantizeAffine for "
            f"int4; got {values.dtype} with {scales.dtype} scales"
        )
    return WeightSpec(values.name or "", format, n, k, group, read_quantized=_quantized_reader(node))


def static_shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None and value.shape.is_static(), f"initializer {value.name} has no static shape"
    return tuple(int(dim) for dim in value.shape.numpy())


def _float_reader(value: ir.Value) -> FloatRows:
    weight = value.meta.get(WEIGHT_META)
    if weight is not None:
        total = weight.shape[0]
        return lambda start, stop: weight.read() if (start, stop) == (0, total) else weight.read_rows(start, stop)
    tensor = value.const_value
    assert tensor is not None
    return lambda start, stop: tensor.numpy()[start:stop]


def _quantized_reader(node: ir.Node) -> ReadQuantized:
    operands = [value for value in node.inputs if value is not None]
    weight: QuantizedWeight | None = operands[0].meta.get(QUANTIZED_META)
    if weight is not None:
        return weight.read_rows
    tensors = [value.const_value for value in operands]

    def read(start: int, stop: int) -> QuantizedRows:
        q, scale, *zero = (tensor.numpy()[start:stop] for tensor in tensors if tensor is not None)
        return QuantizedRows(q.astype(np.int8), scale, zero[0] if zero else None)

    return read
