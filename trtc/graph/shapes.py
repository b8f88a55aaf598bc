"""Type and shape rules of every operator a graph may hold: what the builder writes and verification recomputes.

A rule takes a node whose inputs are typed and returns the type of each output. It raises :class:`GraphError` with the
bare reason; callers add the phase and the node's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from trtc.errors import GraphError
from trtc.graph import contract, ops
from trtc.graph.contract import Dim

FLOAT = ir.DataType.FLOAT
FLOAT16 = ir.DataType.FLOAT16
INT4 = ir.DataType.INT4
INT8 = ir.DataType.INT8
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64
UINT4 = ir.DataType.UINT4


class ValueType(NamedTuple):
    """Element type and dimensions: ints, or the symbolic names of contract.py."""

    dtype: ir.DataType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name.lower()}[{', '.join(map(str, self.shape))}]"


class Rule(NamedTuple):
    """One operator: how many inputs (optional ones last), which attributes, and its type rule."""

    min_inputs: int
    max_inputs: int
    attributes: dict[str, type]
    required: frozenset[str]
    infer: Callable[[ir.Node], list[ValueType]]


def value_type(value: ir.Value | None) -> ValueType:
    """Type of a value; GraphError when dtype or a dimension is not known."""
    if value is None:
        raise GraphError("a required input is absent")
    if value.dtype is None or value.shape is None:
        raise GraphError(f"value {value.name!r} has no dtype or no shape")
    dims: list[Dim] = []
    for dim in value.shape:
        if isinstance(dim, int):
            dims.append(dim)
        elif dim.value is not None:
            dims.append(str(dim.value))
        else:
            raise GraphError(f"value {value.name!r} has an unnamed dimension")
    return ValueType(value.dtype, tuple(dims))


def attribute(node: ir.Node, name: str, default: int | float | str | None = None) -> int | float | str:
    """Value of an attribute, or ``default``; GraphError when it is absent and has none."""
    attr = node.attributes.get(name)
    if attr is not None:
        value = attr.value
        if isinstance(value, (int, float, str)):
            return value
        raise GraphError(f"attribute {name!r} is {value!r}, expected a number or a string")
    if default is None:
        raise GraphError(f"attribute {name!r} is missing")
    return default


def constant_ints(value: ir.Value | None) -> list[int]:
    """Elements of a constant int64 vector (the target of a Reshape, the sizes of a Split)."""
    if value is None or value.const_value is None:
        raise GraphError("sizes must be a constant initializer")
    return [int(item) for item in value.const_value.numpy()]


def infer_outputs(node: ir.Node) -> list[ValueType]:
    """Types of a node's outputs from those of its inputs. Raises GraphError with the reason."""
    rule = RULES.get((node.domain, node.op_type))
    if rule is None:
        raise GraphError(f"operator {node.domain or 'onnx'}.{node.op_type} is not one a graph may hold")
    present = len(node.inputs)
    if not rule.min_inputs <= present <= rule.max_inputs or any(v is None for v in node.inputs[: rule.min_inputs]):
        raise GraphError(f"got {present} inputs, expected {rule.min_inputs} to {rule.max_inputs}")
    for name, attr in node.attributes.items():
        kind = rule.attributes.get(name)
        if kind is None:
            raise GraphError(f"unknown attribute {name!r}; known: {', '.join(rule.attributes) or 'none'}")
        if not isinstance(attr.value, kind):
            raise GraphError(f"attribute {name!r} is {attr.value!r}, expected {kind.__name__}")
    missing = rule.required - set(node.attributes)
    if missing:
        raise GraphError(f"missing attribute {sorted(missing)[0]!r}")
    return rule.infer(node)


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise GraphError(message)


def _expect_type(value: ir.Value | None, dtype: ir.DataType, shape: Sequence[Dim], role: str) -> None:
    got, want = value_type(value), ValueType(dtype, tuple(shape))
    _expect(got == want, f"{role} is {got}, expected {want}")


def _float_rows(value: ir.Value | None, role: str) -> tuple[Dim, int]:
    """Rows and columns of a float32 matrix with a known number of columns."""
    got = value_type(value)
    ok = got.dtype == FLOAT and len(got.shape) == 2 and isinstance(got.shape[1], int)
    _expect(ok, f"{role} is {got}, expected float[rows, columns]")
    return got.shape[0], int(got.shape[1])


def _unary(node: ir.Node) -> list[ValueType]:
    got = value_type(node.inputs[0])
    _expect(got.dtype == FLOAT, f"x is {got}, expected float")
    return [got]


def _swish(node: ir.Node) -> list[ValueType]:
    _expect(attribute(node, "alpha", 1.0) == 1.0, "alpha must be 1")
    return _unary(node)


def _gelu(node: ir.Node) -> list[ValueType]:
    kind = attribute(node, "approximate", "none")
    _expect(kind in ("none", "tanh"), f"approximate is {kind!r}, expected 'none' or 'tanh'")
    return _unary(node)


def _broadcast(node: ir.Node) -> list[ValueType]:
    a, b = value_type(node.inputs[0]), value_type(node.inputs[1])
    _expect(a.dtype == b.dtype == FLOAT, f"operands are {a} and {b}, expected float")
    rank = max(len(a.shape), len(b.shape))
    padded = [(1,) * (rank - len(t.shape)) + t.shape for t in (a, b)]
    dims: list[Dim] = []
    for x, y in zip(*padded, strict=True):
        _expect(x == y or x == 1 or y == 1, f"operands {a} and {b} do not broadcast")
        dims.append(y if x == 1 else x)
    return [ValueType(FLOAT, tuple(dims))]


def _gather(node: ir.Node) -> list[ValueType]:
    data, indices = value_type(node.inputs[0]), value_type(node.inputs[1])
    _expect(attribute(node, "axis", 0) == 0, "axis must be 0")
    _expect(len(data.shape) == 2 and data.dtype == FLOAT, f"data is {data}, expected float[rows, columns]")
    _expect(indices.dtype == INT32 and len(indices.shape) == 1, f"indices are {indices}, expected int32[n]")
    return [ValueType(data.dtype, indices.shape + data.shape[1:])]


def _gemm(node: ir.Node) -> list[ValueType]:
    for name, only in (("transB", 1), ("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
        _expect(attribute(node, name, 0 if name == "transB" else only) == only, f"{name} must be {only}")
    rows, k = _float_rows(node.inputs[0], "x")
    n, weight_k = _float_rows(node.inputs[1], "weight")
    _expect(k == weight_k, f"x has {k} columns but the weight [out, in] has {weight_k}")
    if len(node.inputs) == 3 and node.inputs[2] is not None:
        _expect_type(node.inputs[2], FLOAT, (n,), "bias")
    return [ValueType(FLOAT, (rows, n))]


def _normalization(node: ir.Node) -> list[ValueType]:
    x = value_type(node.inputs[0])
    _expect(x.dtype == FLOAT and len(x.shape) >= 2, f"x is {x}, expected float[rows, ..., columns]")
    _expect(attribute(node, "axis", -1) == -1, "axis must be -1")
    for value, role in zip(node.inputs[1:], ("scale", "bias"), strict=False):
        _expect_type(value, FLOAT, x.shape[-1:], role)
    return [x]


def _dequantize(node: ir.Node) -> list[ValueType]:
    q, scale = value_type(node.inputs[0]), value_type(node.inputs[1])
    block = int(attribute(node, "block_size"))
    _expect(attribute(node, "axis") == 1, "axis must be 1")
    _expect(attribute(node, "output_dtype") == int(FLOAT), "output_dtype must be FLOAT")
    _expect(q.dtype in (INT8, INT4), f"x is {q}, expected int8 or int4")
    want = _blocks_shape(q, block)
    ok = scale.dtype in (FLOAT16, FLOAT) and scale.shape == want
    _expect(ok, f"scale is {scale}, expected float16 or float {list(want)}")
    return [ValueType(FLOAT, q.shape)]


def _dequantize_affine(node: ir.Node) -> list[ValueType]:
    q = value_type(node.inputs[0])
    _expect(q.dtype == UINT4, f"x is {q}, expected uint4")
    want = _blocks_shape(q, int(attribute(node, "block_size")))
    _expect_type(node.inputs[1], FLOAT16, want, "scale")
    _expect_type(node.inputs[2], FLOAT16, want, "zero_point")
    return [ValueType(FLOAT, q.shape)]


def _blocks_shape(q: ValueType, block: int) -> tuple[Dim, ...]:
    """[rows, blocks] of [rows, columns]."""
    _expect(len(q.shape) == 2 and isinstance(q.shape[1], int), f"x is {q}, expected [rows, columns]")
    _expect(block > 0, f"block_size {block} must be positive")
    return q.shape[0], math.ceil(int(q.shape[1]) / block)


def _split(node: ir.Node) -> list[ValueType]:
    rows, columns = _float_rows(node.inputs[0], "input")
    _expect(attribute(node, "axis", 0) == 1, "axis must be 1")
    sizes = constant_ints(node.inputs[1])
    _expect(sum(sizes) == columns, f"sizes {sizes} do not add up to {columns} columns")
    return [ValueType(FLOAT, (rows, size)) for size in sizes]


def _reshape(node: ir.Node) -> list[ValueType]:
    x, target = value_type(node.inputs[0]), constant_ints(node.inputs[1])
    _expect(-1 not in target, "write out the dimensions instead of -1")
    copied = all(size != 0 or i < len(x.shape) for i, size in enumerate(target))
    _expect(copied, f"0 copies a dimension that {x} lacks")
    shape = tuple(x.shape[i] if size == 0 else size for i, size in enumerate(target))

    def volume(dims: tuple[Dim, ...]) -> tuple[list[str], int]:
        return sorted(d for d in dims if isinstance(d, str)), math.prod(d for d in dims if isinstance(d, int))

    _expect(volume(shape) == volume(x.shape), f"{x} does not fit into {list(shape)}")
    return [ValueType(x.dtype, shape)]


def _concat(node: ir.Node) -> list[ValueType]:
    types = [value_type(value) for value in node.inputs]
    axis = int(attribute(node, "axis"))
    first = types[0]
    _expect(0 <= axis < len(first.shape), f"axis {axis} is out of range for {first}")
    for other in types[1:]:
        rest = [len(t.shape) == len(first.shape) and (*t.shape[:axis], *t.shape[axis + 1 :]) for t in (first, other)]
        _expect(other.dtype == first.dtype and rest[0] == rest[1], f"{first} and {other} differ besides axis {axis}")
    sizes = [t.shape[axis] for t in types]
    _expect(all(isinstance(size, int) for size in sizes), f"cannot concatenate along symbolic sizes {sizes}")
    joined = sum(int(size) for size in sizes)
    return [ValueType(first.dtype, (*first.shape[:axis], joined, *first.shape[axis + 1 :]))]


def _paged_attention(node: ir.Node) -> list[ValueType]:
    query, _, _, cache = (value_type(value) for value in node.inputs[:4])
    heads, kv_heads = int(attribute(node, "num_heads")), int(attribute(node, "num_kv_heads"))
    head_dim = int(attribute(node, "head_dim"))
    _expect(kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads are not a multiple of {kv_heads} kv heads")
    _expect(int(attribute(node, "window")) >= 0, "window must be 0 (all) or positive")
    _expect_type(node.inputs[0], FLOAT, (contract.TOKENS, heads * head_dim), "query")
    _expect_type(node.inputs[1], FLOAT, (contract.TOKENS, kv_heads * head_dim), "key")
    _expect_type(node.inputs[2], FLOAT, (contract.TOKENS, kv_heads * head_dim), "value")
    ok = len(cache.shape) == 5 and cache.shape[:3] == (contract.BLOCKS, 2, kv_heads) and cache.shape[4] == head_dim
    _expect(ok, f"kv_cache is {cache}, expected [blocks, 2, {kv_heads}, block_size, {head_dim}]")
    for value, binding in zip(
        node.inputs[4:], (contract.QUERY_START, contract.CONTEXT_LENS, contract.BLOCK_TABLE), strict=True
    ):
        _expect_type(value, INT32, binding.shape, binding.name)
    return [query, cache]


def _rotary(node: ir.Node) -> list[ValueType]:
    x = value_type(node.inputs[0])
    rows, columns = _float_rows(node.inputs[0], "x")
    heads, rotary_dim = int(attribute(node, "num_heads")), int(attribute(node, "rotary_dim"))
    _expect(heads > 0 and columns % heads == 0, f"{columns} columns are not a multiple of {heads} heads")
    _expect(rotary_dim % 2 == 0 and 0 < rotary_dim <= columns // heads, f"rotary_dim {rotary_dim} does not fit a head")
    positions, half = _float_rows(node.inputs[1], "cos")
    _expect(half == rotary_dim // 2, f"cos has {half} columns, expected rotary_dim / 2 = {rotary_dim // 2}")
    _expect_type(node.inputs[2], FLOAT, (positions, half), "sin")
    _expect_type(node.inputs[3], INT32, (rows,), "position_ids")
    return [x]


def _gated_activation(node: ir.Node) -> list[ValueType]:
    rows, columns = _float_rows(node.inputs[0], "x")
    kind = attribute(node, "activation")
    _expect(kind in ("silu", "gelu", "gelu_tanh"), f"activation is {kind!r}, expected silu, gelu or gelu_tanh")
    _expect(columns % 2 == 0, f"x has {columns} columns, expected an even number")
    return [ValueType(FLOAT, (rows, columns // 2))]


def _add_normalization(node: ir.Node) -> list[ValueType]:
    rows, columns = _float_rows(node.inputs[0], "x")
    _expect_type(node.inputs[1], FLOAT, (rows, columns), "residual")
    for value, role in zip(node.inputs[2:], ("scale", "bias"), strict=False):
        _expect_type(value, FLOAT, (columns,), role)
    out = ValueType(FLOAT, (rows, columns))
    return [out, out]


def _all_gather(node: ir.Node) -> list[ValueType]:
    rows, columns = _float_rows(node.inputs[0], "x")
    world = int(attribute(node, "world"))
    _expect(world > 1, f"world is {world}, expected at least 2")
    return [ValueType(FLOAT, (rows, world * columns))]


def _quantize_activation(node: ir.Node) -> list[ValueType]:
    rows, columns = _float_rows(node.inputs[0], "x")
    block = int(attribute(node, "block_size"))
    _expect(block > 0, f"block_size {block} must be positive")
    return [ValueType(INT8, (rows, columns)), ValueType(FLOAT, (rows, math.ceil(columns / block)))]


def _standard(
    inputs: tuple[int, int], attributes: dict[str, type], infer: Callable[[ir.Node], list[ValueType]]
) -> Rule:
    return Rule(*inputs, attributes, frozenset(), infer)


def _ours(schema: ops.OpSchema, infer: Callable[[ir.Node], list[ValueType]]) -> Rule:
    return Rule(len(schema.inputs), len(schema.inputs), schema.attributes, frozenset(schema.attributes), infer)


RULES: dict[tuple[str, str], Rule] = {
    ("", "Add"): _standard((2, 2), {}, _broadcast),
    ("", "Concat"): _standard((1, 1 << 16), {"axis": int}, _concat),
    ("", "DequantizeLinear"): _standard((2, 2), {"axis": int, "block_size": int, "output_dtype": int}, _dequantize),
    ("", "Gather"): _standard((2, 2), {"axis": int}, _gather),
    ("", "Gelu"): _standard((1, 1), {"approximate": str}, _gelu),
    ("", "Gemm"): _standard((2, 3), {"transA": int, "transB": int, "alpha": float, "beta": float}, _gemm),
    ("", "LayerNormalization"): _standard((3, 3), {"axis": int, "epsilon": float}, _normalization),
    ("", "Mul"): _standard((2, 2), {}, _broadcast),
    ("", "RMSNormalization"): _standard((2, 2), {"axis": int, "epsilon": float}, _normalization),
    ("", "Reshape"): _standard((2, 2), {}, _reshape),
    ("", "Split"): _standard((2, 2), {"axis": int}, _split),
    ("", "Swish"): _standard((1, 1), {"alpha": float}, _swish),
    ("", "Tanh"): _standard((1, 1), {}, _unary),
    (ops.DOMAIN, "PagedAttention"): _ours(ops.PAGED_ATTENTION, _paged_attention),
    (ops.DOMAIN, "AllGather"): _ours(ops.ALL_GATHER, _all_gather),
    (ops.DOMAIN, "AllReduce"): _ours(ops.ALL_REDUCE, _unary),
    (ops.DOMAIN, "GatherShard"): _ours(ops.GATHER_SHARD, _gather),
    (ops.DOMAIN, "RotaryEmbedding"): _ours(ops.ROTARY_EMBEDDING, _rotary),
    (ops.DOMAIN, "DequantizeAffine"): _ours(ops.DEQUANTIZE_AFFINE, _dequantize_affine),
    (ops.DOMAIN, "GatedActivation"): _ours(ops.GATED_ACTIVATION, _gated_activation),
    (ops.DOMAIN, "AddRMSNormalization"): _ours(ops.ADD_RMS_NORMALIZATION, _add_normalization),
    (ops.DOMAIN, "AddLayerNormalization"): _ours(ops.ADD_LAYER_NORMALIZATION, _add_normalization),
    (ops.DOMAIN, "QuantizeActivation"): _ours(ops.QUANTIZE_ACTIVATION, _quantize_activation),
}
