import numpy as np
import pytest

from trtc.passes.fuse_gate_up import FuseGateUpPass

ACTIVATIONS = {
    "silu": ("Swish", {"alpha": 1.0}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
}


def gated_mlp(sketch, activation="silu", *, bias=(False, False), up_source=None, up_first=False, widths=(10, 10)):
    x = sketch.input("x", 12)
    gate = sketch.linear(x, widths[0], "mlp.gate_proj", bias[0])
    up = sketch.linear(up_source or x, widths[1], "mlp.up_proj", bias[1])
    op_type, attributes = ACTIVATIONS[activation]
    act = sketch.op(op_type, gate, name="mlp.act", **attributes)
    return gate, act, sketch.op("Mul", *((up, act) if up_first else (act, up)), name="mlp.mul")


def refusal_of(sketch, same_after):
    report = same_after(sketch, FuseGateUpPass())
    assert report.rewrites == 0
    return report.refusals[0].reason


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("up_first", [False, True])
def test_gated_mlp_becomes_one_gemm_and_a_gated_activation(sketch, same_after, activation, bias, up_first):
    _, _, y = gated_mlp(sketch, activation, bias=(bias, bias), up_first=up_first)
    sketch.finish(sketch.op("Tanh", y, name="after"))
    assert same_after(sketch, FuseGateUpPass()).rewrites == 1
    assert sketch.op_types() == ["Gemm", "GatedActivation", "Tanh"]
    assert sketch.graph[0].name == "mlp.gate_up_proj"
    assert sketch.graph[0].inputs[1].shape == [20, 12]
    assert sketch.graph[1].attributes["activation"].value == activation
    assert len(sketch.graph.initializers) == (2 if bias else 1)


def split_mlp(sketch, *, gate_part=0, up_part=1, sizes=(10, 10)):
    joined = sketch.linear(sketch.input("x", 12), sum(sizes), "mlp.gate_up_proj")
    parts = sketch.op("Split", joined, sketch.constant("sizes", np.array(sizes)), name="split", axis=1)
    act = sketch.op("Swish", parts[gate_part], name="act", alpha=1.0)
    return sketch.finish(sketch.op("Tanh", sketch.op("Mul", parts[up_part], act, name="mul"), name="after"))


def test_checkpoint_with_one_gate_up_weight_loses_its_split(sketch, same_after):
    split_mlp(sketch)
    assert same_after(sketch, FuseGateUpPass()).rewrites == 1
    assert sketch.op_types() == ["Gemm", "GatedActivation", "Tanh"]


@pytest.mark.parametrize(("gate_part", "up_part", "sizes"), [(1, 0, (10, 10)), (0, 1, (10, 10, 4))])
def test_split_in_another_order_is_refused(sketch, same_after, gate_part, up_part, sizes):
    split_mlp(sketch, gate_part=gate_part, up_part=up_part, sizes=sizes)
    assert refusal_of(sketch, same_after) == "mul does not multiply the two halves of one Split, gate first"


def test_gate_with_a_second_reader_is_refused(sketch, same_after):
    gate, _, y = gated_mlp(sketch)
    sketch.finish(sketch.op("Tanh", y, name="after"), sketch.op("Tanh", gate, name="reader"))
    assert refusal_of(sketch, same_after) == "the gate of mlp.mul is used elsewhere too"


def test_activated_gate_with_a_second_reader_is_refused(sketch, same_after):
    _, act, y = gated_mlp(sketch)
    sketch.finish(sketch.op("Tanh", y, name="after"), sketch.op("Tanh", act, name="reader"))
    assert refusal_of(sketch, same_after) == "the activated gate of mlp.mul is used elsewhere too"


def test_gate_and_up_of_different_inputs_are_refused(sketch, same_after):
    _, _, y = gated_mlp(sketch, up_source=sketch.input("other", 12))
    sketch.finish(sketch.op("Tanh", y, name="after"))
    assert refusal_of(sketch, same_after) == "mlp.gate_proj and mlp.up_proj have different inputs"


def test_bias_on_one_side_only_is_refused(sketch, same_after):
    _, _, y = gated_mlp(sketch, bias=(True, False))
    sketch.finish(sketch.op("Tanh", y, name="after"))
    assert refusal_of(sketch, same_after) == "only one of mlp.gate_proj and mlp.up_proj has a bias"


def test_broadcast_up_is_refused(sketch, same_after):
    _, _, y = gated_mlp(sketch, widths=(10, 1))
    sketch.finish(sketch.op("Tanh", y, name="after"))
    assert refusal_of(sketch, same_after) == "gate and up of mlp.mul differ in width"


def test_square_of_one_projection_is_no_gated_mlp(sketch, same_after):
    gate = sketch.linear(sketch.input("x", 12), 10, "fc")
    act = sketch.op("Swish", gate, name="act", alpha=1.0)
    sketch.finish(sketch.op("Mul", act, gate, name="mul"))
    report = same_after(sketch, FuseGateUpPass())
    assert (report.rewrites, report.refusals) == (0, ())
