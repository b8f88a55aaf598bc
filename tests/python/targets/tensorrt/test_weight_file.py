"""Weights in the types of the network, one after the other in a file."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from tests.python.targets.graphs import linear, step_graph
from trtc.config import QuantConfig
from trtc.errors import BuildError
from trtc.graph.builder import WEIGHT_META
from trtc.passes.quantize_weights import QuantizeWeightsPass
from trtc.targets.tensorrt.weight_file import WeightFile, write_weights


def layer(g, x):
    return linear(g, x, "mlp", 24)


def stored(model, tmp_path, dtype="float16"):
    """The entries by name, and a reader of their bytes through the mapping."""
    entries = write_weights(model, dtype, tmp_path / "weights.bin")
    file = WeightFile(tmp_path / "weights.bin", entries)

    def read(name):
        entry, address = file.find(name)
        return np.frombuffer(ctypes.string_at(address, entry.bytes), np.uint8)

    return {entry.name: entry for entry in entries}, read


def floats(model):
    return {name: np.asarray(v.const_value.numpy()) for name, v in model.graph.initializers.items()}


@pytest.mark.parametrize(("dtype", "numpy_type"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_matrices_have_the_engines_dtype(tmp_path, dtype, numpy_type):
    model = step_graph(layer)
    entries, read = stored(model, tmp_path, dtype)
    values = floats(model)
    for name, entry in entries.items():
        if entry.dtype == dtype:
            assert np.array_equal(read(name).view(numpy_type).reshape(entry.shape), values[name].astype(numpy_type))
    assert {entry.dtype for entry in entries.values()} >= {dtype}
    assert all(entry.offset % 256 == 0 for entry in entries.values())


def test_int4_lies_two_in_a_byte_low_half_first(tmp_path):
    model = step_graph(layer)
    quant = QuantConfig(quant_algo="w4a16", has_zero_point=False, quantize_vocabulary=False)
    QuantizeWeightsPass(quant)(model)
    entries, read = stored(model, tmp_path)
    name = next(name for name, entry in entries.items() if entry.dtype == "int4")
    q = model.graph.initializers[name].const_value.numpy().astype(np.int8).reshape(-1)
    low, high = read(name) & 15, read(name) >> 4
    assert np.array_equal(np.stack([low, high], 1).reshape(-1), q & 15)
    assert entries[name].bytes == q.size // 2


def test_a_value_beyond_float16_is_refused_by_name(tmp_path):
    model = step_graph(layer)
    value = next(v for v in model.graph.initializers.values() if "mlp" in v.name and len(v.shape) == 2)
    weight = value.meta.pop(WEIGHT_META, None)
    array = np.array(weight.read() if weight is not None else value.const_value.numpy(), np.float32)
    array[1, 2] = -70000.0
    value.const_value = ir.Tensor(array, name=value.name)
    with pytest.raises(BuildError, match=rf"tensor {value.name} holds 70000, beyond float16's 65504; .* bfloat16"):
        stored(model, tmp_path)
    stored(model, tmp_path, "bfloat16")
