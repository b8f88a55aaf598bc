import numpy as np
import onnx
import pytest

from trtc.errors import BuildError
from trtc.passes.dump import EMBED_BYTES, save_graph


def wide_linear(sketch):
    x = sketch.linear(sketch.input("x", 128), 128, "wide", bias=True)
    return sketch.finish(sketch.op("RMSNormalization", x, sketch.weight("norm", 128), name="y", epsilon=1e-6))


def test_dump_opens_in_onnx_with_large_weights_as_inputs(sketch, tmp_path):
    wide_linear(sketch)
    path = tmp_path / "graphs" / "recipe.onnx"
    save_graph(sketch.model, path)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["x", "wide.weight"]
    assert {tensor.name for tensor in model.graph.initializer} == {"wide.bias", "norm"}
    assert path.stat().st_size < EMBED_BYTES


def test_dump_reads_no_large_weight_and_leaves_the_model_as_it_was(sketch, tmp_path):
    wide_linear(sketch)
    before = sketch.run()["y"]
    sketch.graph.initializers["wide.weight"].const_value = Unreadable(sketch.graph.initializers["wide.weight"])
    save_graph(sketch.model, tmp_path / "recipe.onnx")
    sketch.graph.initializers["wide.weight"].const_value = sketch.graph.initializers["wide.weight"].const_value.tensor
    assert np.array_equal(sketch.run()["y"], before)
    assert [value.name for value in sketch.graph.inputs] == ["x"]


class Unreadable:
    """A tensor whose values must not be asked for."""

    def __init__(self, value):
        self.tensor = value.const_value
        self.nbytes, self.dtype, self.shape, self.name = (
            self.tensor.nbytes,
            self.tensor.dtype,
            self.tensor.shape,
            value.name,
        )

    def numpy(self):
        raise AssertionError("the dump read a large weight")

    tobytes = numpy


def test_unwritable_place_is_one_clear_error(sketch, tmp_path):
    wide_linear(sketch)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BuildError, match="cannot write the graph to "):
        save_graph(sketch.model, tmp_path / "file" / "recipe.onnx")
