from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from trtc.errors import GraphError
from trtc.graph import ops
from trtc.graph.builder import make_node
from trtc.graph.shapes import RULES, value_type

F, H = ir.DataType.FLOAT, ir.DataType.FLOAT16
I4, U4, I8, I32, I64 = (getattr(ir.DataType, name) for name in ("INT4", "UINT4", "INT8", "INT32", "INT64"))


def val(name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
    return ir.val(name, dtype, shape)


def ints(*values: int) -> ir.Value:
    return ir.Value(
        name="ints",
        shape=ir.Shape([len(values)]),
        type=ir.TensorType(I64),
        const_value=ir.tensor(list(values), dtype=I64),
    )


X = val("x", F, "tokens", 12)
OURS = {"domain": ops.DOMAIN}

GOOD: list[tuple[str, list[ir.Value], dict[str, Any], list[str]]] = [
    ("Gather", [val("t", F, 7, 12), val("i", I32, "tokens")], {"axis": 0}, ["float[tokens, 12]"]),
    ("Gather", [X, val("i", I32, "logit_rows")], {"axis": 0}, ["float[logit_rows, 12]"]),
    ("Gemm", [X, val("w", F, 5, 12), val("b", F, 5)], {"transB": 1}, ["float[tokens, 5]"]),
    ("Add", [X, val("b", F, 12)], {}, ["float[tokens, 12]"]),
    ("Mul", [X, val("s", F)], {}, ["float[tokens, 12]"]),
    ("RMSNormalization", [X, val("s", F, 12)], {"axis": -1, "epsilon": 1e-6}, ["float[tokens, 12]"]),
    ("Reshape", [X, ints(0, 3, 4)], {}, ["float[tokens, 3, 4]"]),
    ("Reshape", [val("h", F, "tokens", 3, 4), ints(0, 12)], {}, ["float[tokens, 12]"]),
    ("Split", [X, ints(8, 2, 2)], {"axis": 1}, ["float[tokens, 8]", "float[tokens, 2]", "float[tokens, 2]"]),
    ("Concat", [X, val("y", F, "tokens", 3)], {"axis": 1}, ["float[tokens, 15]"]),
    (
        "DequantizeLinear",
        [val("q", I4, 6, 100), val("s", H, 6, 4)],
        {"axis": 1, "block_size": 32, "output_dtype": 1},
        ["float[6, 100]"],
    ),
    (
        "DequantizeAffine",
        [val("q", U4, 6, 100), val("s", H, 6, 4), val("z", H, 6, 4)],
        {"block_size": 32, **OURS},
        ["float[6, 100]"],
    ),
    ("AllReduce", [X], OURS, ["float[tokens, 12]"]),
    ("AllGather", [X], {"world": 4, **OURS}, ["float[tokens, 48]"]),
    ("GatherShard", [val("t", F, 7, 12), val("i", I32, "tokens")], {"first_row": 7, **OURS}, ["float[tokens, 12]"]),
    ("GatedActivation", [X], {"activation": "silu", **OURS}, ["float[tokens, 6]"]),
    ("QuantizeActivation", [X], {"block_size": 8, **OURS}, ["int8[tokens, 12]", "float[tokens, 2]"]),
    (
        "AddRMSNormalization",
        [X, X, val("s", F, 12)],
        {"epsilon": 1e-6, **OURS},
        ["float[tokens, 12]", "float[tokens, 12]"],
    ),
    (
        "RotaryEmbedding",
        [X, val("c", F, 64, 2), val("s", F, 64, 2), val("p", I32, "tokens")],
        {"num_heads": 3, "rotary_dim": 4, **OURS},
        ["float[tokens, 12]"],
    ),
]

BAD: list[tuple[str, list[ir.Value], dict[str, Any], str]] = [
    ("Gather", [X, val("i", I64, "tokens")], {"axis": 0}, "expected int32"),
    ("Gemm", [X, val("w", F, 5, 12)], {}, "transB must be 1"),
    ("Gemm", [X, val("w", F, 5, 12), val("b", F, 4)], {"transB": 1}, r"bias is float\[4\], expected float\[5\]"),
    ("Gemm", [X], {"transB": 1}, "got 1 inputs, expected 2 to 3"),
    ("Add", [X, val("b", F, 11)], {}, "do not broadcast"),
    ("Add", [X, val("b", F, "seqs", 12)], {}, "do not broadcast"),
    ("RMSNormalization", [X, val("s", F, 11)], {"axis": -1}, r"scale is float\[11\]"),
    ("LayerNormalization", [X, val("s", F, 12)], {}, "got 2 inputs, expected 3 to 3"),
    ("Reshape", [X, ints(0, 5)], {}, "does not fit"),
    ("Reshape", [X, ints(0, -1)], {}, "instead of -1"),
    ("Reshape", [X, val("target", I64, 2)], {}, "constant initializer"),
    ("Split", [X, ints(8, 8)], {"axis": 1}, "do not add up to 12"),
    ("Concat", [X, val("y", F, "seqs", 3)], {"axis": 1}, "differ besides axis 1"),
    ("Concat", [X, X], {"axis": 0}, "symbolic"),
    ("Swish", [X], {"alpha": 2.0}, "alpha must be 1"),
    ("Gelu", [X], {"approximate": "fast"}, "expected 'none' or 'tanh'"),
    ("Tanh", [X], {"gain": 1.0}, "unknown attribute 'gain'"),
    (
        "DequantizeLinear",
        [val("q", I8, 6, 100), val("s", H, 6, 3)],
        {"axis": 1, "block_size": 32, "output_dtype": 1},
        r"expected float16 or float \[6, 4\]",
    ),
    (
        "DequantizeAffine",
        [val("q", I8, 6, 100), val("s", H, 6, 4), val("z", H, 6, 4)],
        {"block_size": 32, **OURS},
        "expected uint4",
    ),
    (
        "DequantizeAffine",
        [val("q", U4, 6, 100), val("s", H, 6, 4), val("z", H, 6, 3)],
        {"block_size": 32, **OURS},
        r"zero_point is float16\[6, 3\], expected float16\[6, 4\]",
    ),
    ("AllGather", [X], {"world": 1, **OURS}, "world is 1, expected at least 2"),
    ("GatedActivation", [X], OURS, "missing attribute 'activation'"),
    ("GatedActivation", [X], {"activation": 3, **OURS}, "attribute 'activation' is 3, expected str"),
    ("GatedActivation", [X], {"activation": "relu", **OURS}, "expected silu, gelu or gelu_tanh"),
    (
        "RotaryEmbedding",
        [X, val("c", F, 64, 3), val("s", F, 64, 3), val("p", I32, "tokens")],
        {"num_heads": 3, "rotary_dim": 4, **OURS},
        "cos has 3 columns, expected rotary_dim / 2 = 2",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "expected"), GOOD)
def test_rule_types_the_outputs(
    op: str, inputs: list[ir.Value], attributes: dict[str, Any], expected: list[str]
) -> None:
    attributes = dict(attributes)
    node = make_node(op, inputs, domain=attributes.pop("domain", ""), attributes=attributes, name="n")
    assert [str(value_type(value)) for value in node.outputs] == expected


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), BAD)
def test_rule_refuses_with_the_reason(
    op: str, inputs: list[ir.Value], attributes: dict[str, Any], message: str
) -> None:
    attributes = dict(attributes)
    with pytest.raises(GraphError, match=message):
        make_node(op, inputs, domain=attributes.pop("domain", ""), attributes=attributes, name="n")


def test_every_trtc_operator_has_a_rule() -> None:
    assert {name for domain, name in RULES if domain == ops.DOMAIN} == set(ops.SCHEMAS)
