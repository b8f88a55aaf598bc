"""A residual add and the normalization of its sum as one kernel, which reads and writes the sum once."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from trtc.graph.ops import DOMAIN
from trtc.passes.base import RewritePass
from trtc.passes.rewriting import float_attribute, insert_before, is_op, producer, remove_dead, unique_name

_FUSED = {"RMSNormalization": "AddRMSNormalization", "LayerNormalization": "AddLayerNormalization"}
_OPERANDS = {"RMSNormalization": 2, "LayerNormalization": 3}  # x, scale, (bias)
_EPSILON = 1e-5  # ONNX's default


class AddNormMatch(NamedTuple):
    """``norm`` normalizes the sum that ``add`` makes."""

    add: ir.Node
    norm: ir.Node


class FuseAddNormPass(RewritePass[AddNormMatch]):
    """``s = Add(x, r); y = Norm(s)`` -> ``y, s = trtc.AddNorm(x, r)``.

    Other readers of the sum read the second output.
    """

    def pattern(self, node: ir.Node) -> AddNormMatch | None:
        if node.domain or node.op_type not in _FUSED:
            return None
        add = producer(node.inputs[0])
        return AddNormMatch(add, node) if is_op(add, "Add") else None

    def check(self, match: AddNormMatch) -> str | None:
        x, residual = match.add.inputs
        if x is None or residual is None or x.shape != residual.shape or x.shape is None or len(x.shape) != 2:
            return f"{match.add.name} does not add two matrices [tokens, hidden] of one shape"
        if x.is_initializer() or residual.is_initializer():
            return f"{match.add.name} adds a constant"
        if len(match.norm.inputs) != _OPERANDS[match.norm.op_type]:
            return f"{match.norm.name} has no bias"
        if not all(value is not None and value.is_initializer() for value in match.norm.inputs[1:]):
            return f"the scale or bias of {match.norm.name} is computed"
        if any(value.is_graph_output() for node in match for value in node.outputs):
            return f"the sum or the result of {match.norm.name} is an output of the graph"
        return None

    def rewrite(self, graph: ir.Graph, match: AddNormMatch) -> None:
        fused = insert_before(
            match.add,
            _FUSED[match.norm.op_type],
            [*match.add.inputs, *match.norm.inputs[1:]],
            {"epsilon": float_attribute(match.norm, "epsilon", _EPSILON)},
            domain=DOMAIN,
            name=unique_name(graph, f"{match.norm.name}.add"),
        )
        normalized, total = fused.outputs
        match.norm.outputs[0].replace_all_uses_with(normalized)
        match.add.outputs[0].replace_all_uses_with(total)
        remove_dead(graph, [match.add, match.norm])
