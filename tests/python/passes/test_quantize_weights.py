import math

import numpy as np
import pytest

from tests.quantized_values import values_of
from trtc.config import QuantConfig
from trtc.passes.base import PreconditionError
from trtc.passes.quantize_weights import QuantizeWeightsPass
from trtc.quantize.groupwise import QUANTIZED_META

VOCAB, HIDDEN, WIDE = 40, 72, 24  # 72 is two groups of 32 and a short one of 8
WEIGHT_ONLY = ["w8a16", "w4a16"]
EVERY = [*WEIGHT_ONLY, "w8a8", "w4a8"]


def quantize(algo):
    return QuantizeWeightsPass(QuantConfig(quant_algo=algo, group_size=32))


def language_model(sketch, *, tied):
    """Embedding, two linears over one input, logits with a soft cap."""
    ids = sketch.ids("input_ids", VOCAB)
    table = sketch.weight("embed.weight", VOCAB, HIDDEN)
    x = sketch.op("Gather", table, ids, name="embed", axis=0)
    a, b = sketch.linear(x, WIDE, "a", bias=True), sketch.linear(x, WIDE, "b")
    y = sketch.linear(sketch.op("Mul", a, b, name="mul"), HIDDEN, "down")
    y = sketch.op("RMSNormalization", y, sketch.weight("norm.weight", HIDDEN), name="norm", epsilon=1e-6)
    head = table if tied else sketch.weight("head.weight", VOCAB, HIDDEN)
    logits = sketch.op("Gemm", y, head, name="head", transB=1)
    capped = sketch.op("Tanh", logits, name="logits")
    return sketch.finish(capped)


def integer_types(sketch):
    return {name: value.dtype.name for name, value in sketch.graph.initializers.items() if name.endswith(".q")}


@pytest.mark.parametrize("algo", EVERY)
@pytest.mark.parametrize("tied", [True, False])
def test_vocabulary_matrices_keep_eight_bits(sketch, algo, tied):
    language_model(sketch, tied=tied)
    quantize(algo)(sketch.model)
    inner = "UINT4" if algo.startswith("w4") else "INT8"
    assert integer_types(sketch) == {
        "a.weight.q": inner,
        "b.weight.q": inner,
        "down.weight.q": inner,
        "embed.weight.q": "INT8",
        **({} if tied else {"head.weight.q": "INT8"}),
    }


@pytest.mark.parametrize("algo", WEIGHT_ONLY)
def test_outputs_equal_those_of_the_rounded_weights(sketch, algo):
    """Quantizing the graph computes exactly what float weights of the same rounded values compute."""
    language_model(sketch, tied=True)
    original = dict(sketch.graph.initializers)
    quantize(algo)(sketch.model)
    got = sketch.run()["logits"]
    rounded = {}
    for name in [name.removesuffix(".q") for name in sketch.graph.initializers if name.endswith(".q")]:
        rounded[name] = values_of(sketch.graph.initializers[f"{name}.q"].meta[QUANTIZED_META].read(), 32)
    x = rounded["embed.weight"][sketch.arrays["input_ids"]]
    a = x @ rounded["a.weight"].T + original["a.bias"].const_value.numpy()
    y = (a * (x @ rounded["b.weight"].T)) @ rounded["down.weight"].T
    y = y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + np.float32(1e-6))
    want = np.tanh((y * original["norm.weight"].const_value.numpy()) @ rounded["embed.weight"].T)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_tied_matrix_is_quantized_once_and_feeds_both_readers(sketch):
    language_model(sketch, tied=True)
    quantize("w4a16")(sketch.model)
    gather = next(node for node in sketch.graph if node.op_type == "Gather")
    head = next(node for node in sketch.graph if node.name == "head")
    assert gather.inputs[0] is head.inputs[1]
    assert gather.inputs[0].producer().op_type == "DequantizeLinear"


@pytest.mark.parametrize("name", ["embed.weight.scale", "down.weight.scale", "down.weight.zero"])
def test_scales_and_zeros_are_float16_and_the_last_group_may_be_short(sketch, name):
    language_model(sketch, tied=True)
    quantize("w4a16")(sketch.model)
    value = sketch.graph.initializers[name]
    rows, columns = (VOCAB, HIDDEN) if name.startswith("embed") else (HIDDEN, WIDE)
    assert (value.dtype.name, tuple(value.shape)) == ("FLOAT16", (rows, math.ceil(columns / 32)))
    assert value.const_value.numpy().dtype == np.float16


def test_only_int4_has_zeros(sketch):
    language_model(sketch, tied=True)
    quantize("w4a16")(sketch.model)
    zeros = {name for name in sketch.graph.initializers if name.endswith(".zero")}
    assert zeros == {"a.weight.zero", "b.weight.zero", "down.weight.zero"}


@pytest.mark.parametrize("algo", ["w8a8", "w4a8"])
def test_int8_activations_are_quantized_once_per_input(sketch, algo):
    language_model(sketch, tied=True)
    quantize(algo)(sketch.model)
    assert sketch.op_types().count("QuantizeActivation") == 3  # x of a and b, of down, of the head
    a, b = (next(node for node in sketch.graph if node.name == name) for name in "ab")
    assert a.inputs[0] is b.inputs[0]
    gather = next(node for node in sketch.graph if node.op_type == "Gather")
    assert [use.node.op_type for use in gather.outputs[0].uses()] == ["QuantizeActivation"]


@pytest.mark.parametrize("algo", ["w8a8", "w4a8"])
def test_int8_activations_move_a_product_by_their_rounding_at_most(sketch, algo):
    """|x - x'| is at most half a step of max|group| / 127, so |y - y'| is at most its sum against |W|."""
    x = sketch.input("x", HIDDEN)
    inner = sketch.linear(x, WIDE, "a")
    sketch.finish(sketch.linear(inner, VOCAB, "logits"), inner)
    quantize(algo)(sketch.model)
    weight = values_of(sketch.graph.initializers["a.weight.q"].meta[QUANTIZED_META].read(), 32).astype(np.float64)
    rows = sketch.arrays["x"].astype(np.float64)
    largest = np.stack([np.abs(rows[:, i : i + 32]).max(axis=1) for i in range(0, HIDDEN, 32)], axis=1)
    half_step = np.repeat(largest / 127 / 2, 32, axis=1)[:, :HIDDEN]
    difference = np.abs(sketch.run()["a"] - rows @ weight.T)
    assert (difference <= half_step @ np.abs(weight).T * (1 + 1e-4)).all()
    assert difference.max() > 0


@pytest.mark.parametrize("algo", WEIGHT_ONLY)
def test_weight_only_algorithms_leave_activations_alone(sketch, algo):
    language_model(sketch, tied=False)
    quantize(algo)(sketch.model)
    assert "QuantizeActivation" not in sketch.op_types()


def test_norm_scales_biases_and_learned_positions_stay_float(sketch):
    positions = sketch.ids("position_ids", 9)
    x = sketch.op("Gather", sketch.weight("positions.weight", 9, HIDDEN), positions, name="embed", axis=0)
    logits = sketch.linear(x, VOCAB, "logits", bias=True)
    sketch.finish(logits)
    quantize("w8a16")(sketch.model)
    kept = {name for name, value in sketch.graph.initializers.items() if value.dtype.name == "FLOAT"}
    assert kept == {"positions.weight", "logits.bias"}


def test_second_run_is_refused(sketch):
    language_model(sketch, tied=True)
    quantize("w8a16")(sketch.model)
    with pytest.raises(PreconditionError, match="holds quantized weights already"):
        quantize("w8a16")(sketch.model)


def test_algorithm_none_is_refused(sketch):
    language_model(sketch, tied=True)
    with pytest.raises(PreconditionError, match="algorithm is none"):
        quantize("none")(sketch.model)


def test_linear_layers_alone_by_symmetric_groups_or_channels(sketch):
    """What the TensorRT targets ask for."""
    language_model(sketch, tied=True)
    original = dict(sketch.graph.initializers)
    settings = QuantConfig(quant_algo="w4a16", group_size=64, has_zero_point=False, quantize_vocabulary=False)
    report = QuantizeWeightsPass(settings)(sketch.model)
    assert integer_types(sketch) == dict.fromkeys(["a.weight.q", "b.weight.q", "down.weight.q"], "INT4")
    assert "embed.weight" in sketch.graph.initializers
    assert {refusal.reason for refusal in report.refusals} == {
        "the embedding and logits matrix stays as it is (quantize_vocabulary)"
    }
    assert not [node for node in sketch.graph if node.op_type == "DequantizeAffine"]
    assert original["a.weight"].shape == sketch.graph.initializers["a.weight.q"].shape


def test_one_scale_for_each_output_channel(sketch):
    language_model(sketch, tied=True)
    settings = QuantConfig(quant_algo="w8a16", group_size=0, quantize_vocabulary=False)
    QuantizeWeightsPass(settings)(sketch.model)
    scales = {name: tuple(v.shape) for name, v in sketch.graph.initializers.items() if name.endswith(".scale")}
    assert scales == {"a.weight.scale": (WIDE, 1), "b.weight.scale": (WIDE, 1), "down.weight.scale": (HIDDEN, 1)}
