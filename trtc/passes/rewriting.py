"""Small tools that passes share: look at nodes, name new ones, splice them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

from trtc.graph.builder import make_node
from trtc.graph.ops import DEQUANTIZERS


def is_op(node: ir.Node | None, op_type: str, domain: str = "") -> TypeGuard[ir.Node]:
    """Whether ``node`` is that operator of that domain."""
    return node is not None and node.op_type == op_type and node.domain == domain


def is_dequantize(node: ir.Node | None) -> TypeGuard[ir.Node]:
    """Whether ``node`` is one of ``ops.DEQUANTIZERS``."""
    return node is not None and (node.domain, node.op_type) in DEQUANTIZERS


def producer(value: ir.Value | None) -> ir.Node | None:
    """The node that makes ``value``; None for graph inputs, initializers and absent inputs."""
    return None if value is None else value.producer()


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute, or its ONNX default where the node leaves it out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """A float attribute, or its ONNX default where the node leaves it out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def string_attribute(node: ir.Node, name: str, default: str) -> str:
    """A string attribute, or its ONNX default where the node leaves it out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape as integers, or None when a dimension is symbolic or unknown."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dim) for dim in value.shape.numpy())


def static_columns(value: ir.Value) -> int | None:
    """The size of the last dimension, or None when it is symbolic or unknown."""
    last = value.shape[-1] if value.shape is not None and len(value.shape) else None
    return last if isinstance(last, int) else None


def bias_of(gemm: ir.Node) -> ir.Value | None:
    """The bias of a Gemm, where it has one."""
    return gemm.inputs[2] if len(gemm.inputs) > 2 else None


def linear_problem(gemm: ir.Node) -> str | None:
    """Why a Gemm is not a linear layer ``x W^T (+ b)`` over initializers of its own, or None when it is one."""
    weight, bias = gemm.inputs[1], bias_of(gemm)
    if weight is None or not weight.is_initializer():
        return f"the weight of {gemm.name} is computed, not an initializer"
    if len(weight.uses()) > 1:
        return f"the weight of {gemm.name} is shared with another node"
    if bias is not None and not bias.is_initializer():
        return f"the bias of {gemm.name} is computed, not an initializer"
    return None


def unique_name(graph: ir.Graph, wanted: str) -> str:
    """``wanted``, numbered when the graph already has a node, value or initializer of that name."""
    taken = {value.name for value in graph.inputs} | set(graph.initializers)
    for node in graph:
        taken.add(node.name)
        taken.update(value.name for value in node.outputs)
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


def joint_name(graph: ir.Graph, names: Sequence[str | None], what: str) -> str:
    """A free name for what replaces several things: their common dotted prefix, then ``what``.

    ``layers.0.attn.q_proj`` and ``layers.0.attn.k_proj`` become ``layers.0.attn.qkv_proj``.
    """
    shared: list[str] = []
    for parts in zip(*[(name or "").split(".")[:-1] for name in names], strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return unique_name(graph, ".".join([*shared, what]))


def insert_before(
    place: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Any] | None = None,
    *,
    domain: str = "",
    name: str,
) -> ir.Node:
    """Make a typed node and put it in front of ``place``, whose metadata it takes over."""
    node = make_node(op_type, inputs, attributes, domain=domain, name=name)
    node.metadata_props.update(place.metadata_props)
    assert place.graph is not None
    place.graph.insert_before(place, node)
    return node


def sizes(graph: ir.Graph, *values: int) -> ir.Value:
    """An int64 vector, the sizes of a Split; the one the graph has already, as the builder names it, if it has one."""
    wanted = "ints." + "_".join(map(str, values))
    known = graph.initializers.get(wanted)
    if known is not None:
        return known
    tensor = ir.Tensor(np.array(values, np.int64), name=wanted)
    value = ir.Value(
        name=tensor.name, shape=ir.Shape([len(values)]), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def remove_dead(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Remove those of ``nodes`` that nothing uses any more, last first, and the initializers only they used."""
    for node in reversed(nodes):
        if any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue
        initializers = [value for value in node.inputs if value is not None and value.is_initializer()]
        graph.remove(node, safe=True)
        for value in initializers:
            if not value.uses():
                graph.initializers.pop(value.name or "", None)
