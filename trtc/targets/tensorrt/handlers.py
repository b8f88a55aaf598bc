"""One function per operator: the TensorRT layers that a node becomes."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.errors import BuildError
from trtc.graph import contract
from trtc.graph.ops import DOMAIN
from trtc.graph.shapes import INT8, constant_ints, value_type
from trtc.passes.rewriting import bias_of, float_attribute, is_op, static_columns, static_shape, string_attribute
from trtc.targets.tensorrt.attention_layers import connect_attention
from trtc.targets.tensorrt.network import NetworkBuilder, Tensor
from trtc.targets.tensorrt.refused import refused

Handler = Callable[[NetworkBuilder, ir.Node], None]

_EPSILON = 1e-5  # ONNX's default


def build_nodes(net: NetworkBuilder, model: ir.Model) -> None:
    """Add the layers of every node. Raises BuildError naming the first operator and node that cannot be built."""
    for node in model.graph:
        handler = HANDLERS.get((node.domain, node.op_type))
        if handler is None:
            known = ", ".join(sorted(op_type for _, op_type in HANDLERS))
            raise refused(node, "there is no layer for it", f"express it with {known}")
        net.start(node)
        try:
            handler(net, node)
        except BuildError:
            raise
        except (TypeError, ValueError, RuntimeError) as error:  # the bindings refuse arguments this way
            raise refused(node, str(error).splitlines()[0], "report it") from error
        net.finish()


def gather(net: NetworkBuilder, node: ir.Node) -> None:
    table, ids = net.tensor(node.inputs[0]), net.tensor(node.inputs[1])
    net.bind(node.outputs[0], net.out(net.network.add_gather(table, ids, 0)))


def gemm(net: NetworkBuilder, node: ir.Node) -> None:
    """x [rows, in] times W [out, in] transposed; logits leave it as float32."""
    x, weight = net.tensor(node.inputs[0]), net.tensor(node.inputs[1])
    operation = net.trt.MatrixOperation
    y = net.out(net.network.add_matrix_multiply(x, operation.NONE, weight, operation.TRANSPOSE))
    bias = bias_of(node)
    if bias is not None:
        y = net.binary(y, _row(net, bias, 2), "SUM", "bias")
    if value_type(node.outputs[0]).shape[0] == contract.LOGIT_ROWS:
        y = net.cast(y, net.trt.float32)
    net.bind(node.outputs[0], y)


def dequantize(net: NetworkBuilder, node: ir.Node) -> None:
    """int8 by output channel, or int4 by blocks of input channels."""
    q, scale = node.inputs[0], node.inputs[1]
    shape = static_shape(q)
    if q is None or scale is None or shape is None or net.has(q):
        raise refused(node, "it dequantizes activations", "quantize weights alone (w8a16, w4a16)")
    rows, columns = shape
    block = node.attributes["block_size"].as_int()
    if q.dtype == INT8:
        if block < columns:
            raise refused(node, f"int8 has a scale for {block} input channels", "use one for each output channel")
        layer = net.named(net.network.add_dequantize(net.weight(q), net.weight(scale, (rows,)), net.compute))
        layer.axis = 0
    else:
        if columns % block:
            fitting = [size for size in (128, 64, 32) if columns % size == 0]
            advice = f"build with group size {fitting[0]}" if fitting else "use w8a16"
            raise refused(node, f"{columns} input channels are no multiple of the group size {block}", advice)
        layer = net.named(net.network.add_dequantize(net.weight(q), net.weight(scale), net.compute))
    net.bind(node.outputs[0], layer.get_output(0))


def split(net: NetworkBuilder, node: ir.Node) -> None:
    x = net.tensor(node.inputs[0])
    first = 0
    for output, columns in zip(node.outputs, constant_ints(node.inputs[1]), strict=True):
        net.bind(output, _columns(net, x, output, first, columns))
        first += columns


def reshape(net: NetworkBuilder, node: ir.Node) -> None:
    target = constant_ints(node.inputs[1])
    if target[0] != 0:
        raise refused(node, "it moves elements between rows", "keep the first axis")
    layer = net.named(net.network.add_shuffle(net.tensor(node.inputs[0])))
    layer.reshape_dims = tuple(target)  # 0 keeps a dimension, as in ONNX
    net.bind(node.outputs[0], layer.get_output(0))


def normalization(net: NetworkBuilder, node: ir.Node) -> None:
    x = net.tensor(node.inputs[0])
    net.bind(node.outputs[0], _normalized(net, node, x, 1))


def add_normalization(net: NetworkBuilder, node: ir.Node) -> None:
    total = net.binary(net.tensor(node.inputs[0]), net.tensor(node.inputs[1]), "SUM", "sum")
    net.bind(node.outputs[1], total)
    net.bind(node.outputs[0], _normalized(net, node, total, 2))


def _normalized(net: NetworkBuilder, node: ir.Node, x: Tensor, scale_index: int) -> Tensor:
    """Over the last axis, in float32, returned in x's type."""
    rank = len(x.shape)
    wide = net.cast(x, net.trt.float32)
    rms = "RMS" in node.op_type
    if not rms:
        wide = net.binary(wide, _mean(net, wide), "SUB", "centered")
    power = net.binary(wide, wide, "PROD", "square")
    epsilon = net.scalar(float_attribute(node, "epsilon", _EPSILON), wide)
    variance = net.binary(_mean(net, power), epsilon, "SUM", "variance")
    deviation = net.out(net.network.add_unary(variance, net.trt.UnaryOperation.SQRT), "deviation")
    y = net.binary(wide, deviation, "DIV", "normalized")
    y = net.binary(y, _row(net, node.inputs[scale_index], rank), "PROD", "scaled")
    if not rms:
        y = net.binary(y, _row(net, node.inputs[scale_index + 1], rank), "SUM", "shifted")
    return net.cast(y, x.dtype)


def _mean(net: NetworkBuilder, x: Tensor) -> Tensor:
    last = 1 << (len(x.shape) - 1)
    return net.out(net.network.add_reduce(x, net.trt.ReduceOperation.AVG, last, True), "mean")


def rotary(net: NetworkBuilder, node: ir.Node) -> None:
    """Part of the PagedAttention that reads it."""
    for user, index in node.outputs[0].uses():
        if not is_op(user, "PagedAttention", DOMAIN) or index > 1:
            raise refused(node, f"{user.name!r} reads it", "only the query and the key of an attention are rotated")


def paged_attention(net: NetworkBuilder, node: ir.Node) -> None:
    attended, cache = connect_attention(net, node)
    net.bind(node.outputs[0], attended)
    net.bind(node.outputs[1], cache)


def gated_activation(net: NetworkBuilder, node: ir.Node) -> None:
    x, y = net.tensor(node.inputs[0]), node.outputs[0]
    columns = static_columns(y)
    assert columns is not None
    gate, up = (_columns(net, x, y, first, columns) for first in (0, columns))
    acted = net.activate(gate, node.attributes["activation"].as_string())
    net.bind(y, net.binary(acted, up, "PROD", "gated"))


def activation(net: NetworkBuilder, node: ir.Node) -> None:
    """Swish, Gelu, Tanh."""
    kinds = {"Swish": "silu", "Tanh": "tanh", "Gelu": "gelu"}
    kind = kinds[node.op_type]
    if kind == "gelu" and string_attribute(node, "approximate", "none") == "tanh":
        kind = "gelu_tanh"
    net.bind(node.outputs[0], net.activate(net.tensor(node.inputs[0]), kind))


def add(net: NetworkBuilder, node: ir.Node) -> None:
    _binary(net, node, "SUM")


def multiply(net: NetworkBuilder, node: ir.Node) -> None:
    _binary(net, node, "PROD")


def _binary(net: NetworkBuilder, node: ir.Node, operation: str) -> None:
    """Two activations, an activation and a row, or an activation and a number."""
    first, second = node.inputs
    a, b = (first, second) if net.has(first) else (second, first)
    if not net.has(a):
        raise refused(node, "both operands are constants", "fold it")
    x = net.tensor(a)
    net.bind(node.outputs[0], net.binary(x, _operand(net, b, x), operation))


def _operand(net: NetworkBuilder, value: ir.Value | None, like: Tensor) -> Tensor:
    assert value is not None
    if net.has(value):
        return net.tensor(value)
    if value.const_value is not None and value.const_value.size == 1:
        return net.scalar(float(value.const_value.numpy().reshape(-1)[0]), like)
    return net.cast(_row(net, value, len(like.shape)), like.dtype)


def _row(net: NetworkBuilder, value: ir.Value | None, rank: int) -> Tensor:
    """A stored vector as [1, ..., n], which broadcasts over rows."""
    shape = static_shape(value)
    assert value is not None and shape is not None
    return net.weight(value, (1,) * (rank - len(shape)) + shape)


def _columns(net: NetworkBuilder, x: Tensor, rows_of: ir.Value, first: int, columns: int) -> Tensor:
    """Columns ``first`` to ``first + columns`` of every row."""
    layer = net.named(net.network.add_slice(x, (0, first), (0, columns), (1, 1)), f"from{first}")
    layer.set_input(2, net.shape_of_rows(rows_of, columns))
    return layer.get_output(0)


HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "Add"): add,
    ("", "DequantizeLinear"): dequantize,
    ("", "Gather"): gather,
    ("", "Gelu"): activation,
    ("", "Gemm"): gemm,
    ("", "LayerNormalization"): normalization,
    ("", "Mul"): multiply,
    ("", "RMSNormalization"): normalization,
    ("", "Reshape"): reshape,
    ("", "Split"): split,
    ("", "Swish"): activation,
    ("", "Tanh"): activation,
    (DOMAIN, "AddLayerNormalization"): add_normalization,
    (DOMAIN, "AddRMSNormalization"): add_normalization,
    (DOMAIN, "GatedActivation"): gated_activation,
    (DOMAIN, "PagedAttention"): paged_attention,
    (DOMAIN, "RotaryEmbedding"): rotary,
}
