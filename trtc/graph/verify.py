"""Verification of a step graph: run after the recipe and after every pass phase. A failure is always a bug of ours."""

from __future__ import annotations

import onnx_ir as ir

from trtc.errors import GraphError
from trtc.graph import contract, ops
from trtc.graph.shapes import FLOAT, INT32, ValueType, infer_outputs, value_type

KV_INPUT = 3  # position of kv_cache among PagedAttention's inputs


def verify(model: ir.Model, phase: str) -> None:
    """Check SSA form, types, operators, attributes, bindings and KV wiring.

    Raises GraphError naming ``phase`` and the node or value at fault.
    """
    try:
        _check_opsets(model)
        _check_inputs(model.graph)
        _check_nodes(model.graph)
        _check_outputs(model.graph)
        _check_kv_wiring(model.graph)
    except GraphError as error:
        raise GraphError(f"after phase {phase!r}: {error}") from error


def _check_opsets(model: ir.Model) -> None:
    got, want = dict(model.graph.opset_imports), {"": ops.ONNX_OPSET, ops.DOMAIN: ops.DOMAIN_VERSION}
    if got != want:
        raise GraphError(f"opset imports are {got}, expected {want}")


def _check_type(value: ir.Value, want: ValueType) -> None:
    got = value_type(value)
    if got != want:
        raise GraphError(f"value {value.name!r} is {got}, expected {want}")


def _kv_layer(name: str) -> int | None:
    prefix, _, layer = name.rpartition(".")
    return int(layer) if prefix == "kv_cache" and layer.isdigit() else None


def _check_inputs(graph: ir.Graph) -> None:
    step = {binding.name: binding for binding in contract.STEP_INPUTS}
    seen: set[str] = set()
    for value in graph.inputs:
        name = value.name or ""
        if name in seen:
            raise GraphError(f"input {name!r} appears twice")
        seen.add(name)
        if name in step:
            _check_type(value, ValueType(INT32, step[name].shape))
        elif (layer := _kv_layer(name)) is not None:
            got = value_type(value)
            if len(got.shape) != 5 or not all(isinstance(dim, int) for dim in got.shape[1:]):
                raise GraphError(f"input {name!r} is {got}, expected [blocks, 2, kv_heads, block_size, head_dim]")
            _, _, kv_heads, block_size, head_dim = got.shape
            binding = contract.kv_cache(layer, int(kv_heads), int(head_dim), int(block_size))
            _check_type(value, ValueType(FLOAT, binding.shape))
        else:
            raise GraphError(f"input {name!r} is no binding of contract.py")
    missing = set(step) - seen
    if missing:
        raise GraphError(f"input {sorted(missing)[0]!r} is missing")


def _check_nodes(graph: ir.Graph) -> None:
    defined: set[str] = set()
    known: set[int] = set()

    def define(value: ir.Value) -> None:
        if not value.name:
            raise GraphError("a value has no name")
        if value.name in defined:
            raise GraphError(f"value {value.name!r} is defined twice")
        defined.add(value.name)
        known.add(id(value))

    for value in graph.inputs:
        define(value)
    for key, value in graph.initializers.items():
        if key != value.name or value.const_value is None:
            raise GraphError(f"initializer {key!r} has another name or no value")
        define(value)
        tensor = value.const_value
        _check_type(value, ValueType(tensor.dtype, tuple(int(dim) for dim in tensor.shape.numpy())))
    names: set[str] = set()
    for node in graph:
        if not node.name or node.name in names:
            raise GraphError(f"node name {node.name!r} ({node.op_type}) is empty or used twice")
        names.add(node.name)
        try:
            _check_node(node, known)
            for output in node.outputs:
                define(output)
        except GraphError as error:
            raise GraphError(f"node {node.name!r} ({node.op_type}): {error}") from error


def _check_node(node: ir.Node, known: set[int]) -> None:
    for value in node.inputs:
        if value is not None and id(value) not in known:
            raise GraphError(f"input {value.name!r} is not defined before its use")
    types = infer_outputs(node)
    if len(types) != len(node.outputs):
        raise GraphError(f"got {len(node.outputs)} outputs, expected {len(types)}")
    for value, want in zip(node.outputs, types, strict=True):
        _check_type(value, want)


def _check_outputs(graph: ir.Graph) -> None:
    layers = [layer for value in graph.inputs if (layer := _kv_layer(value.name or "")) is not None]
    want = {"logits", *(contract.kv_cache_out(layer) for layer in layers)}
    names = [value.name or "" for value in graph.outputs]
    if len(names) != len(set(names)) or set(names) != want:
        raise GraphError(f"outputs are {names}, expected {sorted(want)}")
    for value in graph.outputs:
        producer = value.producer()
        if producer is None or producer.graph is not graph:
            raise GraphError(f"output {value.name!r} is not produced by a node of the graph")
        if value.name == "logits":
            got = value_type(value)
            vocab = got.shape[-1] if got.shape else 0
            _check_type(value, ValueType(FLOAT, contract.logits(vocab if isinstance(vocab, int) else 0).shape))


def _check_kv_wiring(graph: ir.Graph) -> None:
    for value in graph.inputs:
        layer = _kv_layer(value.name or "")
        if layer is None:
            continue
        uses = list(value.uses())
        if len(uses) != 1 or uses[0].node.op_type != "PagedAttention" or uses[0].idx != KV_INPUT:
            raise GraphError(f"{value.name!r} must feed exactly the kv_cache input of one PagedAttention")
        node = uses[0].node
        if node.attributes["layer"].value != layer:
            raise GraphError(f"node {node.name!r} says layer {node.attributes['layer'].value} but uses {value.name!r}")
        out = node.outputs[1]
        if out.name != contract.kv_cache_out(layer) or not out.is_graph_output() or list(out.uses()):
            raise GraphError(f"node {node.name!r} must write {contract.kv_cache_out(layer)!r}, and nothing may read it")
