from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.python.graph.graphs import toy_graph
from trtc.errors import GraphError
from trtc.graph import ops
from trtc.graph.reference import COLLECTIVES, KERNELS, evaluate
from trtc.graph.shapes import RULES

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def randn(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def run(op: str, *inputs: Array, domain: str = "", **attributes: Any) -> tuple[Array, ...]:
    return KERNELS[domain, op](*inputs, **attributes)


def onnx_run(op: str, inputs: list[Array], outputs: int, **attributes: Any) -> list[Array]:
    """The same operator by ONNX's own reference."""
    names = [f"i{k}" for k in range(len(inputs))]
    out_names = [f"o{k}" for k in range(outputs)]
    typed = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    outs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in out_names]
    node = onnx.helper.make_node(op, names, out_names, **attributes)
    graph = onnx.helper.make_graph([node], "g", typed, outs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", ops.ONNX_OPSET)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes"),
    [
        ("Add", [randn(3, 4), randn(4)], 1, {}),
        ("Mul", [randn(3, 4), np.float32(2.5).reshape(())], 1, {}),
        ("Tanh", [randn(3, 4)], 1, {}),
        ("Swish", [4 * randn(3, 40)], 1, {}),
        ("Gelu", [3 * randn(3, 40)], 1, {"approximate": "none"}),
        ("Gelu", [3 * randn(3, 40)], 1, {"approximate": "tanh"}),
        ("Gather", [randn(7, 5), np.array([6, 0, 6], np.int32)], 1, {"axis": 0}),
        ("Gemm", [randn(3, 8), randn(5, 8)], 1, {"transB": 1}),
        ("Gemm", [randn(3, 8), randn(5, 8), randn(5)], 1, {"transB": 1}),
        ("RMSNormalization", [randn(3, 2, 8), randn(8)], 1, {"axis": -1, "epsilon": 1e-3}),
        ("LayerNormalization", [5 + randn(3, 8), randn(8), randn(8)], 1, {"axis": -1, "epsilon": 1e-3}),
        ("Split", [randn(3, 8), np.array([5, 3])], 2, {"axis": 1}),
        ("Reshape", [randn(3, 8), np.array([0, 2, 4])], 1, {}),
        ("Concat", [randn(3, 8), randn(3, 2)], 1, {"axis": 1}),
    ],
)
def test_standard_operator_agrees_with_onnx(
    op: str, inputs: list[Array], outputs: int, attributes: dict[str, Any]
) -> None:
    expected = onnx_run(op, inputs, outputs, **attributes)
    for got, want in zip(run(op, *inputs, **attributes), expected, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4])
def test_dequantize_uses_one_scale_per_block_and_allows_a_short_last_one(dtype: Any) -> None:
    q = RNG.integers(-7, 8, (3, 70)).astype(dtype)
    scale = RNG.uniform(0.1, 1, (3, 3)).astype(np.float16)
    (got,) = run("DequantizeLinear", q, scale, axis=1, block_size=32, output_dtype=1)
    expected = [[float(q[i, j]) * float(scale[i, j // 32]) for j in range(70)] for i in range(3)]
    np.testing.assert_array_equal(got, np.array(expected, np.float32))


def test_dequantize_affine_takes_out_the_zero_point_of_each_block() -> None:
    q = RNG.integers(0, 16, (3, 70)).astype(ml_dtypes.uint4)
    scale, zero = (RNG.uniform(0.1, high, (3, 3)).astype(np.float16) for high in (1, 15))
    (got,) = run("DequantizeAffine", q, scale, zero, domain=ops.DOMAIN, block_size=32)
    expected = [
        [(float(q[i, j]) - float(zero[i, j // 32])) * float(scale[i, j // 32]) for j in range(70)] for i in range(3)
    ]
    np.testing.assert_allclose(got, np.array(expected), rtol=1e-6)


def test_quantize_activation_rounds_half_to_even_and_keeps_zero_blocks_zero() -> None:
    x = np.zeros((2, 10), np.float32)
    x[0, :4] = [127, 0.5, 1.5, -2.5]  # scale 1 in block 0
    x[1, 8:] = [-0.254, 0.1]  # the short last block
    q, scale = run("QuantizeActivation", x, domain=ops.DOMAIN, block_size=4)
    assert q.dtype == np.int8 and scale.dtype == np.float32
    np.testing.assert_array_equal(q[0], [127, 0, 2, -2, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(q[1], [0, 0, 0, 0, 0, 0, 0, 0, -127, 50])
    np.testing.assert_allclose(scale, [[1, 0, 0], [0, 0, 0.002]], rtol=1e-6)


def test_rotary_turns_pairs_by_their_position_and_passes_the_rest_through() -> None:
    x = randn(2, 2 * 6)
    angles = RNG.uniform(0, 3, (5, 2)).astype(np.float32)
    positions = np.array([4, 1], np.int32)
    (got,) = run(
        "RotaryEmbedding", x, np.cos(angles), np.sin(angles), positions, domain=ops.DOMAIN, num_heads=2, rotary_dim=4
    )
    for row, position in enumerate(positions):
        for head in (0, 1):
            before, after = (array[row, head * 6 : head * 6 + 6] for array in (x, got))
            for pair in (0, 1):
                turned = (before[pair] + 1j * before[pair + 2]) * np.exp(1j * angles[position, pair])
                np.testing.assert_allclose([after[pair], after[pair + 2]], [turned.real, turned.imag], rtol=1e-5)
            np.testing.assert_array_equal(after[4:], before[4:])


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_gated_activation_is_activation_times_the_other_half(activation: str) -> None:
    x = randn(3, 8)
    standard = {"silu": ("Swish", {}), "gelu": ("Gelu", {}), "gelu_tanh": ("Gelu", {"approximate": "tanh"})}
    op, attributes = standard[activation]
    (got,) = run("GatedActivation", x, domain=ops.DOMAIN, activation=activation)
    np.testing.assert_array_equal(got, run(op, x[:, :4], **attributes)[0] * x[:, 4:])


def test_silu_of_a_very_negative_number_is_zero() -> None:
    np.testing.assert_array_equal(run("Swish", np.float32([[-200.0]]))[0], 0)


def test_fused_norms_are_add_then_norm() -> None:
    x, residual, scale, bias = randn(3, 8), randn(3, 8), randn(8), randn(8)
    y, total = run("AddRMSNormalization", x, residual, scale, domain=ops.DOMAIN, epsilon=1e-5)
    np.testing.assert_array_equal(total, x + residual)
    np.testing.assert_array_equal(y, run("RMSNormalization", x + residual, scale, epsilon=1e-5)[0])
    y, total = run("AddLayerNormalization", x, residual, scale, bias, domain=ops.DOMAIN, epsilon=1e-5)
    np.testing.assert_array_equal(y, run("LayerNormalization", x + residual, scale, bias, epsilon=1e-5)[0])


@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (3, 0.0), (0, 1.5), (1, 0.0)])
def test_paged_attention_is_softmax_attention_over_each_sequence(window: int, softcap: float) -> None:
    """Two sequences: one in prefill with 5 cached tokens, one decoding its 10th token; blocks in odd order."""
    heads, kv_heads, dim, block = 4, 2, 3, 4
    history = [randn(9, 2, kv_heads, dim), randn(10, 2, kv_heads, dim)]  # every position's key and value
    tables = np.array([[5, 0, 2], [1, 6, 3]], np.int32)
    cached, contexts = (5, 9), np.array([9, 10], np.int32)
    cache = np.full((7, 2, kv_heads, block, dim), np.nan, np.float32)
    for seq in (0, 1):
        for position in range(cached[seq]):
            cache[tables[seq, position // block], :, :, position % block] = history[seq][position]
    query = randn(5, heads * dim)
    new = np.concatenate([history[0][5:], history[1][9:]])
    output, cache_out = run(
        "PagedAttention",
        query,
        new[:, 0].reshape(5, -1),
        new[:, 1].reshape(5, -1),
        cache,
        np.array([0, 4, 5], np.int32),
        contexts,
        tables,
        domain=ops.DOMAIN,
        layer=0,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=0.7,
        window=window,
        softcap=softcap,
    )
    rows = [(0, 5), (0, 6), (0, 7), (0, 8), (1, 9)]
    for row, (seq, position) in enumerate(rows):
        for head in range(heads):
            q = query[row, head * dim : head * dim + dim]
            first = max(0, position - window + 1) if window else 0
            pairs = history[seq][first : position + 1, :, head // 2]
            scores = [0.7 * float(key @ q) for key, _ in pairs]
            if softcap:
                scores = [softcap * math.tanh(score / softcap) for score in scores]
            weights = np.exp(scores)
            expected = sum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / weights.sum()
            np.testing.assert_allclose(output[row, head * dim : head * dim + dim], expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(cache_out[2, :, :, 0], history[0][8])
    assert np.isnan(cache[2]).all(), "the caller's cache is left alone"


def test_a_bfloat16_cache_stores_rounded_keys() -> None:
    model = toy_graph()
    inputs = step_inputs()
    cache = np.zeros((2, 2, 1, 4, 4), np.float32)
    exact = evaluate(model, {**inputs, "kv_cache.0": cache})["kv_cache.0.out"]
    rounded = evaluate(model, {**inputs, "kv_cache.0": cache.astype(ml_dtypes.bfloat16)})["kv_cache.0.out"]
    assert rounded.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(rounded, exact.astype(ml_dtypes.bfloat16))


def test_a_missing_input_is_named() -> None:
    with pytest.raises(GraphError, match=r"no array for input 'kv_cache\.0'"):
        evaluate(toy_graph(), step_inputs())


def test_every_operator_a_graph_may_hold_has_a_reference() -> None:
    assert set(KERNELS) | COLLECTIVES == set(RULES)


def step_inputs() -> dict[str, Array]:
    return {
        "input_ids": np.array([3, 1, 4], np.int32),
        "position_ids": np.arange(3, dtype=np.int32),
        "query_start": np.array([0, 3], np.int32),
        "context_lens": np.array([3], np.int32),
        "block_table": np.array([[1]], np.int32),
        "logit_rows": np.array([2], np.int32),
    }
