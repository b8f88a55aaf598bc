"""One function per operator: the kernel calls, or the views, that a node becomes."""

from __future__ import annotations

import onnx_ir as ir

from trtc.engine.format import ActivationKind, Rows, StepInput, WeightFormat
from trtc.engine.operators import Op
from trtc.engine.plan import KvLayer
from trtc.graph import contract
from trtc.graph.ops import DOMAIN
from trtc.graph.shapes import constant_ints
from trtc.targets.cpu.lowering import Handler, Lowering, refused
from trtc.targets.cpu.program import View, step_input

_ACTIVATIONS = {
    "silu": ActivationKind.SILU,
    "gelu": ActivationKind.GELU,
    "gelu_tanh": ActivationKind.GELU_TANH,
}
_STEP_INPUTS = {
    contract.INPUT_IDS.name: StepInput.INPUT_IDS,
    contract.POSITION_IDS.name: StepInput.POSITION_IDS,
    contract.LOGIT_ROW_IDS.name: StepInput.LOGIT_ROWS,
}
_EPSILON = 1e-5  # ONNX's default
_MAX_HEAD_DIM = 512  # kMaxHeadDim of cpp/src/kernels/paged_attention.h


def _step_input(node: ir.Node, index: int) -> StepInput:
    value = node.inputs[index]
    which = _STEP_INPUTS.get(value.name or "") if value is not None and value.is_graph_input() else None
    if which is None:
        raise refused(node, f"its indices are not one of {', '.join(_STEP_INPUTS)}", "index by a step input")
    return which


def _scalar(value: ir.Value | None) -> float | None:
    """A constant of one element."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    return float(value.const_value.numpy().reshape(-1)[0])


def gather(low: Lowering, node: ir.Node) -> None:
    """Embedding from the packed matrix, learned positions, or the rows whose logits are wanted."""
    which = _step_input(node, 1)
    rows = Rows.LOGIT_ROWS if which is StepInput.LOGIT_ROWS else Rows.TOKENS
    ids = step_input(which)
    if which is StepInput.INPUT_IDS:
        table = low.program.weight(low.matrix(node, 0))
        low.program.call(Op.EMBEDDING, rows, node, {"ids": ids, "table": table, "y": low.new_output(node)})
    elif which is StepInput.POSITION_IDS:
        spec = low.row_weight(node, 0, low.options.max_seq_len)
        _require_positions(low, node, spec.n)
        x = low.program.weight(spec)
        low.program.call(Op.GATHER_ROWS, rows, node, {"ids": ids, "x": x, "y": low.new_output(node)})
    else:
        source = low.view(node, 0)
        low.program.call(Op.GATHER_ROWS, rows, node, {"ids": ids, "x": source, "y": low.new_output(node)})


def _require_positions(low: Lowering, node: ir.Node, positions: int) -> None:
    if positions < low.options.max_seq_len:
        raise refused(
            node,
            f"its table has {positions} positions but max_seq_len is {low.options.max_seq_len}",
            f"build with max_seq_len {positions} or less",
        )


def gemm(low: Lowering, node: ir.Node) -> None:
    spec = low.matrix(node, 1)
    bias = low.program.weight(low.row_weight(node, 2), every_row=True) if _has_input(node, 2) else None
    rows, _ = low.extent(node, node.outputs[0])
    x, q, q_scales = _linear_input(low, node)
    if spec.format in (WeightFormat.PACKED_F32, WeightFormat.PACKED_BF16) and q is not None:
        raise refused(node, "its input is quantized but its weight is not", "quantize both")
    weight = low.program.weight(spec)
    low.program.call(
        Op.LINEAR,
        rows,
        node,
        {"x": x, "q": q, "q_scales": q_scales, "weight": weight, "bias": bias, "y": low.new_output(node)},
    )


def _has_input(node: ir.Node, index: int) -> bool:
    return len(node.inputs) > index and node.inputs[index] is not None


def _linear_input(low: Lowering, node: ir.Node) -> tuple[View | None, View | None, View | None]:
    """float32 rows, or int8 rows and their scales where a DequantizeLinear stands in between."""
    value = node.inputs[0]
    producer = value.producer() if value is not None else None
    if producer is not None and producer.op_type == "DequantizeLinear":
        return None, low.view(producer, 0), low.view(producer, 1)
    return low.view(node, 0), None, None


def quantize_activation(low: Lowering, node: ir.Node) -> None:
    """int8 rows padded to whole groups, and their scales."""
    x = low.view(node, 0)
    group = node.attributes["block_size"].as_int()
    groups = -(-x.cols // group)
    y = low.bind(node.outputs[0], low.program.new_view(x.rows, groups * group, element_bytes=1))
    scales = low.bind(node.outputs[1], low.program.new_view(x.rows, groups))
    low.program.call(Op.QUANTIZE_ROWS, x.rows, node, {"x": x, "y": y, "scales": scales}, ints=(group,))


def dequantize(low: Lowering, node: ir.Node) -> None:
    """Part of the Gemm or Gather that reads it."""


def split(low: Lowering, node: ir.Node) -> None:
    view = low.view(node, 0)
    first = 0
    for output, cols in zip(node.outputs, constant_ints(node.inputs[1]), strict=True):
        low.bind(output, view.columns(first, cols))
        first += cols


def reshape(low: Lowering, node: ir.Node) -> None:
    view = low.view(node, 0)
    rows, cols = low.extent(node, node.outputs[0])
    if (rows, cols) != (view.rows, view.cols):
        raise refused(node, "it moves elements between rows", "keep the first axis")
    low.bind(node.outputs[0], view)


def normalization(low: Lowering, node: ir.Node) -> None:
    """RMSNormalization and LayerNormalization over the last axis; heads of a row are normalized one by one."""
    x = low.view(node, 0)
    operands = {"x": x, "y": low.output_over(node, (0,))}
    _normalize(low, node, x, 1, operands)


def add_normalization(low: Lowering, node: ir.Node) -> None:
    """The sum replaces the residual and the result replaces x, where nothing else reads them."""
    x, residual = low.view(node, 0), low.view(node, 1)
    total = low.output_over(node, (1,), index=1)
    y = low.output_over(node, (0,))
    _normalize(low, node, x, 2, {"x": x, "residual": residual, "sum": total, "y": y})


def _normalize(low: Lowering, node: ir.Node, x: View, scale_index: int, operands: dict[str, View]) -> None:
    scale = low.row_weight(node, scale_index)
    bias = low.row_weight(node, scale_index + 1) if _has_input(node, scale_index + 1) else None
    if scale.n != 1 or x.cols % scale.k:
        raise refused(node, f"a scale of {scale.k} does not divide rows of {x.cols}", "normalize over the last axis")
    epsilon = node.attributes.get("epsilon")
    weights = {"scale": low.program.weight(scale), "bias": low.program.weight(bias) if bias else None}
    op = Op.RMS_NORM if "RMS" in node.op_type else Op.LAYER_NORM
    floats = (epsilon.as_float() if epsilon is not None else _EPSILON,)
    low.program.call(op, x.rows, node, {**operands, **weights}, (x.cols // scale.k,), floats)


def rotary(low: Lowering, node: ir.Node) -> None:
    x = low.view(node, 0)
    heads, rotary_dim = node.attributes["num_heads"].as_int(), node.attributes["rotary_dim"].as_int()
    if _step_input(node, 3) is not StepInput.POSITION_IDS:
        raise refused(node, "it rotates by something else than position_ids", "pass position_ids")
    tables = {name: low.row_weight(node, index, low.options.max_seq_len) for index, name in ((1, "cos"), (2, "sin"))}
    _require_positions(low, node, min(table.n for table in tables.values()))
    operands = {name: low.program.weight(table) for name, table in tables.items()}
    positions = step_input(StepInput.POSITION_IDS)
    low.program.call(
        Op.ROTARY,
        x.rows,
        node,
        {"x": x, "position_ids": positions, **operands, "y": low.output_over(node, (0,))},
        (heads, x.cols // heads, rotary_dim),
    )


def paged_attention(low: Lowering, node: ir.Node) -> None:
    attributes = node.attributes
    layer, heads = attributes["layer"].as_int(), attributes["num_heads"].as_int()
    kv_heads, head_dim = attributes["num_kv_heads"].as_int(), attributes["head_dim"].as_int()
    if layer in low.program.kv_layers:
        raise refused(node, f"layer {layer} has a PagedAttention already", "give every layer its own number")
    if head_dim > _MAX_HEAD_DIM:
        raise refused(
            node, f"its heads have {head_dim} channels", f"the attention kernel takes at most {_MAX_HEAD_DIM}"
        )
    low.program.kv_layers[layer] = KvLayer(kv_heads, head_dim, low.options.kv_dtype)
    query, key, value = (low.view(node, index) for index in range(3))
    low.program.call(Op.KV_WRITE, query.rows, node, {"key": key, "value": value}, (layer,))
    low.program.call(
        Op.ATTENTION,
        query.rows,
        node,
        {"query": query, "y": low.new_output(node)},
        (layer, heads, attributes["window"].as_int()),
        (attributes["scale"].as_float(), attributes["softcap"].as_float()),
    )


def gated_activation(low: Lowering, node: ir.Node) -> None:
    x = low.view(node, 0)
    kind = _ACTIVATIONS[node.attributes["activation"].as_string()]
    low.program.call(Op.GATED_ACTIVATION, x.rows, node, {"x": x, "y": low.new_output(node)}, (kind,))


def activation(low: Lowering, node: ir.Node) -> None:
    """Swish, Gelu, Tanh."""
    approximate = node.attributes.get("approximate")
    if node.op_type == "Gelu":
        tanh_form = approximate is not None and approximate.as_string() == "tanh"
        kind = ActivationKind.GELU_TANH if tanh_form else ActivationKind.GELU
    else:
        kind = ActivationKind.SILU if node.op_type == "Swish" else ActivationKind.TANH
    x = low.view(node, 0)
    low.program.call(Op.ACTIVATION, x.rows, node, {"x": x, "y": low.output_over(node, (0,))}, (kind,))


def binary(low: Lowering, node: ir.Node) -> None:
    """Add and Mul of two activations, an activation and a row, or (Mul) an activation and a scalar."""
    op = Op.ADD if node.op_type == "Add" else Op.MUL
    a = 0 if low.has_view(node.inputs[0]) else 1
    b = 1 - a
    x, constant = low.view(node, a), node.inputs[b]
    factor = _scalar(constant)
    if factor is not None and op is Op.MUL:
        low.program.call(Op.SCALE, x.rows, node, {"x": x, "y": low.output_over(node, (a,))}, (), (factor,))
        return
    if constant is not None and constant.is_initializer():
        row = low.row_weight(node, b)
        if (row.n, row.k) != (1, x.cols):
            raise refused(node, f"a constant [{row.n}, {row.k}] beside rows of {x.cols}", "make it one full row")
        one_row = low.program.weight(row, every_row=True)
        low.program.call(op, x.rows, node, {"a": x, "b": one_row, "y": low.output_over(node, (a,))})
        return
    other = low.view(node, b)
    if (other.rows, other.cols) != (x.rows, x.cols):
        raise refused(node, "its operands have different shapes", "activations do not broadcast")
    low.program.call(op, x.rows, node, {"a": x, "b": other, "y": low.output_over(node, (a, b))})


HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "Add"): binary,
    ("", "DequantizeLinear"): dequantize,
    (DOMAIN, "DequantizeAffine"): dequantize,
    ("", "Gather"): gather,
    ("", "Gelu"): activation,
    ("", "Gemm"): gemm,
    ("", "LayerNormalization"): normalization,
    ("", "Mul"): binary,
    ("", "RMSNormalization"): normalization,
    ("", "Reshape"): reshape,
    ("", "Split"): split,
    ("", "Swish"): activation,
    ("", "Tanh"): activation,
    (DOMAIN, "AddLayerNormalization"): add_normalization,
    (DOMAIN, "AddRMSNormalization"): add_normalization,
    (DOMAIN, "GatedActivation"): gated_activation,
    (DOMAIN, "PagedAttention"): paged_attention,
    (DOMAIN, "QuantizeActivation"): quantize_activation,
    (DOMAIN, "RotaryEmbedding"): rotary,
}
