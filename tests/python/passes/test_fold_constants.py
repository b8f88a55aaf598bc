import numpy as np

from trtc.graph.builder import WEIGHT_META, weight_initializer
from trtc.passes.fold_constants import FoldConstantsPass


class CountingWeight:
    """A weight that counts how often it is read."""

    name, shape, dtype = "norm.weight", (12,), "float32"

    def __init__(self):
        self.reads = 0

    def read(self):
        self.reads += 1
        return np.linspace(-1, 1, 12, dtype=np.float32)

    def read_rows(self, start, stop):
        return self.read()[start:stop]


def gemma_norm(sketch, weight):
    sketch.initializers.append(weight)
    scale = sketch.op("Add", weight, sketch.constant("one", np.ones(1, np.float32)), name="scale")
    y = sketch.op("RMSNormalization", sketch.input("x", 12), scale, name="norm", epsilon=1e-6)
    return sketch.finish(sketch.op("Tanh", y, name="after"))


def test_sum_of_weight_and_one_becomes_an_initializer(sketch, same_after):
    gemma_norm(sketch, weight_initializer(CountingWeight()))
    assert same_after(sketch, FoldConstantsPass()).rewrites == 1
    assert sketch.op_types() == ["RMSNormalization", "Tanh"]
    assert list(sketch.graph.initializers) == ["scale.folded"]


def test_folding_reads_nothing_until_the_weight_is_read(sketch):
    weight = CountingWeight()
    gemma_norm(sketch, weight_initializer(weight))
    FoldConstantsPass()(sketch.model)
    assert weight.reads == 0
    folded = sketch.graph.initializers["scale.folded"]
    assert np.array_equal(folded.const_value.numpy(), np.linspace(-1, 1, 12, dtype=np.float32) + np.float32(1))
    assert np.array_equal(folded.meta[WEIGHT_META].read_rows(3, 5), folded.const_value.numpy()[3:5])
    assert weight.reads == 3


def test_chains_of_constants_fold_whole(sketch, same_after):
    w = sketch.weight("w", 3, 4)
    doubled = sketch.op("Mul", w, sketch.constant("two", np.full(1, 2, np.float32)), name="doubled")
    reshaped = sketch.op("Reshape", doubled, sketch.constant("dims", np.array([12])), name="reshaped")
    joined = sketch.op("Concat", reshaped, sketch.weight("tail", 8), name="joined", axis=0)
    sketch.finish(sketch.op("Add", sketch.input("x", 20), joined, name="sum"))
    assert same_after(sketch, FoldConstantsPass()).rewrites == 3
    assert sketch.op_types() == ["Add"]
    assert list(sketch.graph.initializers) == ["joined.folded"]


def test_quantized_weights_are_not_expanded(sketch, same_after):
    q = sketch.constant("q", np.arange(-12, 12, dtype=np.int8).reshape(4, 6))
    scale = sketch.constant("scale", np.ones((4, 2), np.float16))
    w = sketch.op("DequantizeLinear", q, scale, name="dq", axis=1, block_size=4, output_dtype=1)
    sketch.finish(sketch.op("Gemm", sketch.input("x", 6), w, name="y", transB=1))
    report = same_after(sketch, FoldConstantsPass())
    assert report.rewrites == 0
    assert report.refusals[0].reason == "dq keeps its weight small: targets read it packed"


def test_nodes_over_inputs_are_left_alone(sketch, same_after):
    sketch.finish(sketch.op("Add", sketch.input("x", 12), sketch.weight("w", 12), name="sum"))
    report = same_after(sketch, FoldConstantsPass())
    assert (report.rewrites, report.refusals) == (0, ())
