import pytest

from trtc.passes.fuse_add_norm import FuseAddNormPass


def normalized_sum(sketch, kind="rms", residual=None):
    x, r = sketch.input("x", 12), residual if residual is not None else sketch.input("residual", 12)
    total = sketch.op("Add", x, r, name="layers.0.add")
    scale = sketch.weight("norm.weight", 12)
    if kind == "rms":
        y = sketch.op("RMSNormalization", total, scale, name="layers.0.norm", epsilon=1e-6)
    else:
        bias = sketch.weight("norm.bias", 12)
        y = sketch.op("LayerNormalization", total, scale, bias, name="layers.0.norm", epsilon=1e-3)
    return total, y


@pytest.mark.parametrize(("kind", "fused"), [("rms", "AddRMSNormalization"), ("layer", "AddLayerNormalization")])
@pytest.mark.parametrize("sum_used", [False, True])
def test_add_and_norm_become_one_node_that_also_gives_the_sum(sketch, same_after, kind, fused, sum_used):
    total, y = normalized_sum(sketch, kind)
    outputs = [sketch.op("Tanh", y, name="reader")]
    if sum_used:
        outputs.append(sketch.op("Tanh", total, name="residual_reader"))
    sketch.finish(*outputs)
    assert same_after(sketch, FuseAddNormPass()).rewrites == 1
    assert sketch.op_types()[0] == fused
    assert sketch.op_types()[1:] == ["Tanh"] * len(outputs)
    assert sketch.graph[0].attributes["epsilon"].value == pytest.approx(1e-6 if kind == "rms" else 1e-3)


def test_two_norms_of_one_sum_share_the_first_fusion(sketch, same_after):
    total, y = normalized_sum(sketch)
    other = sketch.op("RMSNormalization", total, sketch.weight("other.weight", 12), name="other", epsilon=1e-6)
    sketch.finish(sketch.op("Mul", y, other, name="mul"))
    assert same_after(sketch, FuseAddNormPass()).rewrites == 1
    assert sketch.op_types() == ["AddRMSNormalization", "RMSNormalization", "Mul"]


def test_sum_read_between_add_and_norm_stays_in_order(sketch, same_after):
    x, r = sketch.input("x", 12), sketch.input("residual", 12)
    total = sketch.op("Add", x, r, name="add")
    early = sketch.op("Tanh", total, name="early")
    y = sketch.op("RMSNormalization", total, sketch.weight("w", 12), name="norm", epsilon=1e-6)
    sketch.finish(sketch.op("Mul", early, y, name="mul"))
    assert same_after(sketch, FuseAddNormPass()).rewrites == 1
    assert sketch.op_types() == ["AddRMSNormalization", "Tanh", "Mul"]


def test_bias_add_is_refused(sketch, same_after):
    _, y = normalized_sum(sketch, residual=sketch.weight("bias", 12))
    sketch.finish(sketch.op("Tanh", y, name="reader"))
    report = same_after(sketch, FuseAddNormPass())
    assert report.rewrites == 0
    assert report.refusals[0].reason == "layers.0.add does not add two matrices [tokens, hidden] of one shape"


def test_per_head_norm_is_refused(sketch, same_after):
    heads = sketch.constant("heads", [0, 3, 4])
    a = sketch.op("Reshape", sketch.input("x", 12), heads, name="a")
    b = sketch.op("Reshape", sketch.input("y", 12), heads, name="b")
    total = sketch.op("Add", a, b, name="add")
    sketch.finish(sketch.op("RMSNormalization", total, sketch.weight("w", 4), name="norm", epsilon=1e-6))
    assert same_after(sketch, FuseAddNormPass()).rewrites == 0


def test_sum_that_is_a_graph_output_is_refused(sketch, same_after):
    total, y = normalized_sum(sketch)
    sketch.finish(sketch.op("Tanh", y, name="reader"), total)
    report = same_after(sketch, FuseAddNormPass())
    assert report.refusals[0].reason == "the sum or the result of layers.0.norm is an output of the graph"


def test_norm_of_something_else_is_left_alone(sketch, same_after):
    sketch.finish(sketch.op("RMSNormalization", sketch.input("x", 12), sketch.weight("w", 12), name="n", epsilon=1e-6))
    report = same_after(sketch, FuseAddNormPass())
    assert (report.rewrites, report.refusals) == (0, ())
