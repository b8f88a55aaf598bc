"""Lowered graphs give the reference evaluator's logits, views cost no call, and refusals name the node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_ir import DataType

from tests.python.targets.graphs import (
    CONFIG,
    HIDDEN,
    SETTINGS,
    attend,
    build_toy_engine,
    engine_logits,
    linear,
    random_constant,
    reference_logits,
    step_graph,
    step_inputs,
)
from trtc.config import BuildConfig
from trtc.engine.format import KvDtype, OperandKind, WeightFormat
from trtc.engine.operators import OP_SPECS, Op
from trtc.engine.reader import open_engine
from trtc.errors import BuildError
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder
from trtc.targets.cpu.lower import lower_graph
from trtc.targets.cpu.lowering import LoweringOptions

OPTIONS = LoweringOptions(WeightFormat.PACKED_F32, KvDtype.F32, max_seq_len=64)


def identity(g, x):
    return x


def split_parts(g, x):
    sizes = g.constant(np.array([10, 14], np.int64), "sizes")
    a, b = g.emit("Split", linear(g, x, "fused", 24), sizes, axis=1, name="split")
    return g.op("Add", linear(g, a, "a_proj", HIDDEN), linear(g, b, "b_proj", HIDDEN), name="joined")


def head_norm(g, x):
    heads = g.op("Reshape", x, g.constant(np.array([0, 3, 8], np.int64), "heads"), name="to_heads")
    normed = g.op("RMSNormalization", heads, random_constant(g, "head.scale", 8), axis=-1, epsilon=1e-5, name="norm")
    return g.op("Reshape", normed, g.constant(np.array([0, HIDDEN], np.int64), "flat"), name="from_heads")


def rms_norm(g, x):
    return g.op("RMSNormalization", x, random_constant(g, "scale", HIDDEN), axis=-1, epsilon=1e-5, name="norm")


def layer_norm(g, x):
    scale, bias = random_constant(g, "scale", HIDDEN), random_constant(g, "bias", HIDDEN)
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5, name="norm")


def add_norm(op_type, weights):
    def body(g, x):
        constants = [random_constant(g, f"w{i}", HIDDEN) for i in range(weights)]
        other = linear(g, x, "branch", HIDDEN)
        y, total = g.emit(op_type, other, x, *constants, domain=ops.DOMAIN, epsilon=1e-5, name="add_norm")
        return g.op("Add", y, total, name="again")

    return body


def rotary(g, x):
    angles = np.arange(64)[:, None] * 0.1 ** np.arange(3)[None]
    cos = g.constant(np.cos(angles).astype(np.float32), "cos")
    sin = g.constant(np.sin(angles).astype(np.float32), "sin")
    rotated = g.op(
        "RotaryEmbedding", x, cos, sin, g.position_ids, domain=ops.DOMAIN, num_heads=3, rotary_dim=6, name="rope"
    )
    return g.op("Add", rotated, x, name="both")


def gated(kind):
    def body(g, x):
        wide = linear(g, x, "gate_up", 2 * HIDDEN, bias=True)
        return g.op("GatedActivation", wide, domain=ops.DOMAIN, activation=kind, name="act")

    return body


def unary(op_type, **attributes):
    return lambda g, x: g.op(op_type, x, name="unary", **attributes)


def scaled(g, x):
    return g.op("Mul", x, g.constant(np.array(3.5, np.float32), "factor"), name="scaled")


def times_row(g, x):
    return g.op("Mul", random_constant(g, "row", HIDDEN), x, name="times")


def plus_row(g, x):
    return g.op("Add", x, random_constant(g, "row", HIDDEN), name="plus")


def squared_with_residual(g, x):
    return g.op("Add", g.op("Mul", x, x, name="square"), x, name="plus_x")


def positions(g, x):
    table = random_constant(g, "positions", 64, HIDDEN)
    return g.op("Add", x, g.op("Gather", table, g.position_ids, axis=0, name="position"), name="with_position")


BODIES = {
    "identity": identity,
    "split": split_parts,
    "head-norm": head_norm,
    "rms-norm": rms_norm,
    "layer-norm": layer_norm,
    "add-rms-norm": add_norm("AddRMSNormalization", 1),
    "add-layer-norm": add_norm("AddLayerNormalization", 2),
    "rotary": rotary,
    "silu-gate": gated("silu"),
    "gelu-gate": gated("gelu"),
    "gelu-tanh-gate": gated("gelu_tanh"),
    "swish": unary("Swish", alpha=1.0),
    "gelu": unary("Gelu"),
    "gelu-tanh": unary("Gelu", approximate="tanh"),
    "tanh": unary("Tanh"),
    "scale": scaled,
    "row-product": times_row,
    "row-sum": plus_row,
    "square": squared_with_residual,
    "positions": positions,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_engine_computes_what_the_reference_evaluator_does(body, tmp_path):
    model = step_graph(body)
    inputs = step_inputs()
    expected = reference_logits(model, inputs)
    got = engine_logits(build_toy_engine(model, tmp_path / "engine"), inputs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_only_the_wanted_rows_get_logits(tmp_path):
    model = step_graph(identity)
    engine = build_toy_engine(model, tmp_path / "engine")
    every = engine_logits(engine, step_inputs())
    some = engine_logits(engine, {**step_inputs(), "logit_rows": np.array([0, 18], np.int32)})
    np.testing.assert_array_equal(some, every[[0, 18]])


def calls(body):
    return lower_graph(step_graph(body), OPTIONS).calls


def ops_of(body):
    return [call.op for call in calls(body)]


def test_split_and_reshape_cost_no_call():
    assert len(ops_of(split_parts)) == len(ops_of(identity)) + len(["fused", "a_proj", "b_proj", "joined"])
    assert len(ops_of(head_norm)) == len(ops_of(identity)) + len(["norm"])


def test_rotary_runs_in_place_when_nothing_else_reads_its_input():
    def in_place(g, x):
        both = linear(g, x, "qk", 2 * HIDDEN)
        q, k = g.emit("Split", both, g.constant(np.array([HIDDEN, HIDDEN], np.int64), "s"), axis=1, name="split")
        table = g.constant(np.ones((64, 4), np.float32), "table1")
        rope = g.op(
            "RotaryEmbedding", q, table, table, g.position_ids, domain=ops.DOMAIN, num_heads=3, rotary_dim=8, name="r"
        )
        return g.op("Add", rope, k, name="join")

    rope = next(call for call in calls(in_place) if call.op is Op.ROTARY)
    assert rope.operands[0] == rope.operands[4]
    shared = next(call for call in calls(rotary) if call.op is Op.ROTARY)
    assert shared.operands[0].index != shared.operands[4].index


def test_a_value_that_is_read_again_is_not_overwritten():
    square = next(call for call in calls(squared_with_residual) if call.op is Op.MUL)
    assert square.operands[2].index != square.operands[0].index


def test_soft_capped_logits_are_computed_in_the_output():
    g = GraphBuilder(CONFIG, block_size=16)
    x = g.op("Gather", random_constant(g, "table", CONFIG.vocab_size, HIDDEN), g.input_ids, axis=0, name="embed")
    attended, kv_out = attend(g, x, linear(g, x, "k", 8), linear(g, x, "v", 8))
    logits = linear(g, g.op("Gather", attended, g.logit_rows, axis=0, name="rows"), "lm_head", CONFIG.vocab_size)
    logits = g.op("Mul", logits, g.constant(np.array(0.5, np.float32), "inverse_cap"), name="down")
    logits = g.op("Mul", g.op("Tanh", logits, name="tanh"), g.constant(np.array(2.0, np.float32), "cap"), name="up")
    last = lower_graph(g.finish(logits, [kv_out]), OPTIONS).calls[-4:]
    assert [call.op for call in last] == [Op.LINEAR, Op.SCALE, Op.ACTIVATION, Op.SCALE]
    assert all(call.operands[-1].kind is OperandKind.LOGITS for call in last)


def quantized(weight_bits, group, activations):
    """A linear layer in integers whose input two layers share."""

    def body(g, x):
        if activations:
            q, scale = g.emit("QuantizeActivation", x, domain=ops.DOMAIN, block_size=group, name="quantize")
            x = g.op(
                "DequantizeLinear", q, scale, axis=1, block_size=group, output_dtype=int(DataType.FLOAT), name="back"
            )
        parts = []
        for name in ("first", "second"):
            rng = np.random.default_rng(len(name))
            scale = g.constant((0.01 + 0.02 * rng.random((HIDDEN, 1))).astype(np.float16), f"{name}.scale")
            if weight_bits == 8:
                q = g.constant(rng.integers(-127, 128, (HIDDEN, HIDDEN)).astype(np.int8), f"{name}.q")
                attributes = {"axis": 1, "block_size": group, "output_dtype": int(DataType.FLOAT)}
                weight = g.op("DequantizeLinear", q, scale, **attributes, name=f"{name}.dequantized")
            else:
                q = g.constant(rng.integers(0, 16, (HIDDEN, HIDDEN)).astype("uint4"), f"{name}.q")
                zero = g.constant(rng.uniform(0, 15, (HIDDEN, 1)).astype(np.float16), f"{name}.zero")
                (weight,) = g.emit(
                    "DequantizeAffine", q, scale, zero, domain=ops.DOMAIN, block_size=group, name=f"{name}.dequantized"
                )
            parts.append(g.op("Gemm", x, weight, transB=1, name=name))
        return g.op("Add", *parts, name="both")

    return body


@pytest.mark.parametrize("activations", [False, True], ids=["a16", "a8"])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_linear_layers_match_the_reference(bits, activations, tmp_path):
    model = step_graph(quantized(bits, 32, activations))
    inputs = step_inputs()
    expected = reference_logits(model, inputs)
    got = engine_logits(build_toy_engine(model, tmp_path / "engine"), inputs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_two_layers_share_the_quantized_rows_of_one_input():
    program = lower_graph(step_graph(quantized(8, 32, True)), OPTIONS)
    assert [call.op for call in program.calls].count(Op.QUANTIZE_ROWS) == 1
    readers = [call for call in program.calls if call.op is Op.LINEAR and call.operands[1].kind is OperandKind.ARENA]
    assert len(readers) == 2


def test_tied_embedding_is_stored_once(tmp_path):
    g = GraphBuilder(CONFIG, block_size=16)
    table = random_constant(g, "table", CONFIG.vocab_size, HIDDEN)
    x = g.op("Gather", table, g.input_ids, axis=0, name="embed")
    attended, kv_out = attend(g, x, linear(g, x, "k", 8), linear(g, x, "v", 8))
    wanted = g.op("Gather", attended, g.logit_rows, axis=0, name="rows")
    model = g.finish(g.op("Gemm", wanted, table, transB=1, name="lm_head"), [kv_out])
    engine = build_toy_engine(model, tmp_path / "engine")
    assert [w.name for w in open_engine(engine).plans[0].weights].count("table") == 1
    expected = reference_logits(model, step_inputs())
    np.testing.assert_allclose(engine_logits(engine, step_inputs()), expected, rtol=0, atol=2e-5 * 10)


def test_buffers_are_reused(tmp_path):
    def deep(g, x):
        for layer in range(8):
            x = g.op("Tanh", linear(g, x, f"layer{layer}", HIDDEN), name=f"tanh{layer}")
        return x

    manifest = open_engine(build_toy_engine(step_graph(deep), tmp_path / "engine")).manifest
    assert 2 * manifest.memory.arena_bytes < manifest.memory.arena_bytes_without_reuse


def test_prompt_logit_rows_stay_within_the_logits_budget(tmp_path):
    engine = open_engine(build_toy_engine(step_graph(identity), tmp_path / "engine"))
    assert engine.manifest.limits.max_logit_rows == SETTINGS.max_num_tokens


def refuse(body, settings: BuildConfig = SETTINGS):
    with pytest.raises(BuildError) as caught:
        options = LoweringOptions(WeightFormat.PACKED_F32, KvDtype.F32, settings.max_seq_len or 0)
        lower_graph(step_graph(body), options)
    return str(caught.value)


def test_unknown_operator_is_refused_by_name():
    def concat(g, x):
        wide = g.op("Concat", x, x, axis=1, name="glue")
        return linear(g, wide, "down", HIDDEN)

    message = refuse(concat)
    assert "Concat 'glue'" in message and "RMSNormalization" in message


def test_computed_weight_is_refused_by_node():
    def computed(g, x):
        doubled = g.op("Mul", random_constant(g, "w", HIDDEN, HIDDEN), g.constant(np.array(2.0, np.float32), "two"))
        return g.op("Gemm", x, doubled, transB=1, name="proj")

    assert "'mul'" in refuse(computed)


def test_table_shorter_than_max_seq_len_is_refused():
    message = refuse(positions, SETTINGS.model_copy(update={"max_seq_len": 65}))
    assert "64 positions" in message and "max_seq_len 64 or less" in message


def test_every_call_reads_only_what_an_earlier_one_wrote():
    for body in BODIES.values():
        written: set[int] = set()
        for call in calls(body):
            slots = zip(OP_SPECS[call.op].slots, call.operands, strict=True)
            arena = [(slot.output, operand.index) for slot, operand in slots if operand.kind is OperandKind.ARENA]
            assert {index for output, index in arena if not output} <= written, call
            written |= {index for output, index in arena if output}
