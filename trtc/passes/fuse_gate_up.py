"""The gated MLP as two nodes: one linear layer for gate and up, then ``trtc.GatedActivation``.

GLU variants: Shazeer, https://arxiv.org/abs/2002.05202.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from trtc.graph.ops import DOMAIN
from trtc.passes.base import RewritePass
from trtc.passes.lazy_weights import add_weight, concat_rows
from trtc.passes.rewriting import (
    bias_of,
    float_attribute,
    insert_before,
    is_op,
    joint_name,
    linear_problem,
    producer,
    remove_dead,
    static_columns,
    string_attribute,
)


class GateUpMatch(NamedTuple):
    """``mul = act(gate) * up``, where gate and up are values."""

    mul: ir.Node
    act: ir.Node
    activation: str
    gate: ir.Value
    up: ir.Value


class FuseGateUpPass(RewritePass[GateUpMatch]):
    """``Mul(act(Gemm(x, Wg)), Gemm(x, Wu))`` -> ``GatedActivation(Gemm(x, [Wg; Wu]))``.

    A checkpoint that stores both as one weight arrives as ``Split(Gemm)``; then only the Split goes.
    """

    def pattern(self, node: ir.Node) -> GateUpMatch | None:
        if not is_op(node, "Mul") or len(node.inputs) != 2:
            return None
        for act_side, up in (node.inputs, reversed(node.inputs)):
            act = producer(act_side)
            activation = _activation(act)
            if act is None or activation is None or up is None:
                continue
            gate = act.inputs[0]
            if gate is not None and _is_projection(gate) and _is_projection(up) and gate is not up:
                return GateUpMatch(node, act, activation, gate, up)
        return None

    def check(self, match: GateUpMatch) -> str | None:
        gate, up = _producers(match)
        for value, what in ((match.gate, "gate"), (match.act.outputs[0], "activated gate"), (match.up, "up")):
            if len(value.uses()) != 1 or value.is_graph_output():
                return f"the {what} of {match.mul.name} is used elsewhere too"
        if static_columns(match.gate) != static_columns(match.up):
            return f"gate and up of {match.mul.name} differ in width"
        if is_op(gate, "Split") or is_op(up, "Split"):
            halves = gate is up and _are_halves(match, gate)
            return None if halves else f"{match.mul.name} does not multiply the two halves of one Split, gate first"
        if gate.inputs[0] is not up.inputs[0]:
            return f"{gate.name} and {up.name} have different inputs"
        if (bias_of(gate) is None) != (bias_of(up) is None):
            return f"only one of {gate.name} and {up.name} has a bias"
        return linear_problem(gate) or linear_problem(up)

    def rewrite(self, graph: ir.Graph, match: GateUpMatch) -> None:
        gate, up = _producers(match)
        joined = gate.inputs[0] if gate is up else _joined_linear(graph, gate, up)
        name = joint_name(graph, [match.mul.name], "gated_activation")
        fused = insert_before(
            match.mul, "GatedActivation", [joined], {"activation": match.activation}, domain=DOMAIN, name=name
        )
        match.mul.outputs[0].replace_all_uses_with(fused.outputs[0])
        remove_dead(graph, [gate, up, match.act, match.mul] if gate is not up else [gate, match.act, match.mul])


def _activation(node: ir.Node | None) -> str | None:
    """What GatedActivation calls this node, or None when it is no activation."""
    if is_op(node, "Swish"):
        return "silu" if float_attribute(node, "alpha", 1.0) == 1.0 else None
    if is_op(node, "Gelu"):
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(string_attribute(node, "approximate", "none"))
    return None


def _is_projection(value: ir.Value) -> bool:
    return is_op(value.producer(), "Gemm") or is_op(value.producer(), "Split")


def _producers(match: GateUpMatch) -> tuple[ir.Node, ir.Node]:
    gate, up = match.gate.producer(), match.up.producer()
    assert gate is not None and up is not None
    return gate, up


def _are_halves(match: GateUpMatch, split: ir.Node) -> bool:
    """Whether gate and up are the first and second of just two parts."""
    return len(split.outputs) == 2 and match.gate is split.outputs[0] and match.up is split.outputs[1]


def _joined_linear(graph: ir.Graph, gate: ir.Node, up: ir.Node) -> ir.Value:
    name = joint_name(graph, [gate.name, up.name], "gate_up_proj")
    inputs = [gate.inputs[0], add_weight(graph, concat_rows([gate.inputs[1], up.inputs[1]]), f"{name}.weight")]
    if bias_of(gate) is not None:
        inputs.append(add_weight(graph, concat_rows([bias_of(gate), bias_of(up)]), f"{name}.bias"))
    first = next(node for node in graph if node is gate or node is up)
    return insert_before(first, "Gemm", inputs, {"transB": 1}, name=name).outputs[0]
