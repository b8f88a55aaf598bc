"""Compute once, when a weight is read, what the step would compute from constants again and again.

Gemma's norms multiply by ``1 + weight``: the sum becomes an initializer. It stays lazy: nothing is read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from trtc.graph import reference
from trtc.graph.builder import LazyWeight
from trtc.passes.base import RewritePass
from trtc.passes.lazy_weights import add_weight, weight_of
from trtc.passes.rewriting import is_dequantize, remove_dead, static_shape

Array = npt.NDArray[Any]


class FoldConstantsPass(RewritePass[ir.Node]):
    """A node that reads only initializers becomes a lazy initializer, evaluated as the reference does."""

    def pattern(self, node: ir.Node) -> ir.Node | None:
        return node if node.inputs and all(v is None or v.is_initializer() for v in node.inputs) else None

    def check(self, match: ir.Node) -> str | None:
        if is_dequantize(match):
            return f"{match.name} keeps its weight small: targets read it packed"
        if len(match.outputs) != 1:
            return f"{match.name} has {len(match.outputs)} outputs"
        if match.outputs[0].is_graph_output():
            return f"{match.name} makes an output of the graph"
        if match.outputs[0].dtype != ir.DataType.FLOAT or static_shape(match.outputs[0]) is None:
            return f"{match.name} does not make a float32 tensor of known shape"
        return None

    def rewrite(self, graph: ir.Graph, match: ir.Node) -> None:
        output = match.outputs[0]
        folded = add_weight(graph, _fold(match), f"{output.name}.folded")
        output.replace_all_uses_with(folded)
        remove_dead(graph, [match])


@dataclass(frozen=True)
class FoldedWeight:
    """The output of one operator over constants."""

    name: str
    shape: tuple[int, ...]
    domain: str
    op_type: str
    attributes: dict[str, Any]
    operands: tuple[LazyWeight | Array | None, ...]

    @property
    def dtype(self) -> str:
        return "float32"

    def read(self) -> Array:
        kernel = reference.KERNELS[self.domain, self.op_type]
        (result,) = kernel(*[_read(operand) for operand in self.operands], **self.attributes)
        return np.ascontiguousarray(result, np.float32)

    def read_rows(self, start: int, stop: int) -> Array:
        return self.read()[start:stop]


def _fold(node: ir.Node) -> FoldedWeight:
    shape = static_shape(node.outputs[0])
    assert shape is not None
    operands = tuple(None if value is None else _operand(value) for value in node.inputs)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    return FoldedWeight(node.name or node.op_type, shape, node.domain, node.op_type, attributes, operands)


def _operand(value: ir.Value) -> LazyWeight | Array:
    """Floats stay lazy; integers are shapes and sizes, and small."""
    if value.dtype == ir.DataType.FLOAT:
        return weight_of(value)
    assert value.const_value is not None
    return value.const_value.numpy()


def _read(operand: LazyWeight | Array | None) -> Array | None:
    if operand is None or isinstance(operand, np.ndarray):
        return operand
    return np.asarray(operand.read(), np.float32)
