"""Computes a TensorRT network in numpy, layer by layer, as no GPU is needed to ask it what its layers are.

    python -m tests.tensorrt_values JOB_FOLDER INPUTS.npz OUTPUTS.npz

in an environment that has TensorRT's libraries. All that is float is float32 here, whatever the network says: what is
compared is the network's structure and its stored weights. The plugin computes what the numpy reference of
trtc.PagedAttention and trtc.RotaryEmbedding does, by the plugin's own fields.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from trtc.graph.ops import DOMAIN
from trtc.graph.reference import KERNELS
from trtc.targets.tensorrt.build_plan import JobNetwork
from trtc.targets.tensorrt.job import load_job
from trtc.targets.tensorrt.plugin import PluginFields

Array = np.ndarray[Any, Any]
_DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}


class NetworkValues:
    """Values of a network's tensors, by name."""

    def __init__(self, made: JobNetwork, folder: Path, weights: dict[str, Any], inputs: dict[str, Array]) -> None:
        self.trt, self.network = made.trt, made.network
        self.folder, self.weights = folder, weights
        self.values = dict(inputs)

    def run(self) -> dict[str, Array]:
        waiting = [self.network.get_layer(index) for index in range(self.network.num_layers)]
        while waiting:  # plugins come first in the list, wherever they stand
            ready = [layer for layer in waiting if all(name in self.values for name in self._inputs(layer))]
            assert ready, f"no value for the inputs of {waiting[0].name}"
            for layer in ready:
                self._layer(layer)
            waiting = [layer for layer in waiting if layer not in ready]
        outputs = [self.network.get_output(i).name for i in range(self.network.num_outputs)]
        return {name: self.values[name] for name in outputs}

    def _inputs(self, layer: Any) -> list[str]:
        tensors = [layer.get_input(i) for i in range(layer.num_inputs)]
        return [tensor.name for tensor in tensors if tensor is not None]

    def _layer(self, layer: Any) -> None:
        special = getattr(self, f"_{layer.type.name.lower()}")
        inputs = [self.values[name] for name in self._inputs(layer)]
        results = special(layer, *inputs)
        results = results if isinstance(results, tuple) else (results,)
        for i, value in enumerate(results):
            tensor = layer.get_output(i)
            rank = len(tensor.shape)
            assert rank == np.ndim(value), f"{layer.name} has rank {rank}, computed {np.shape(value)}"
            fits = all(want in (-1, got) for want, got in zip(tensor.shape, np.shape(value), strict=True))
            assert fits, f"{layer.name} is {tensor.shape}, computed {np.shape(value)}"
            self.values[tensor.name] = np.asarray(value)

    def _typed(self, layer: Any, name: str) -> Any:
        layer.__class__ = getattr(self.trt, name)
        return layer

    def _constant(self, layer: Any) -> Array:
        layer = self._typed(layer, "IConstantLayer")
        stored = self.weights.get(layer.name) or self.weights.get(layer.name.rpartition(".")[0])
        if stored is None:
            values = layer.weights
            if not isinstance(values, np.ndarray):
                raise AssertionError(f"{layer.name} has weights that numpy cannot hold")
            wide = values.astype(np.float32) if values.dtype.kind == "f" else values
            return wide.reshape(tuple(layer.shape))
        data = np.fromfile(self.folder / "weights.bin", np.uint8, stored.bytes, offset=stored.offset)
        if stored.dtype == "int4":
            nibbles = np.stack([data & 15, data >> 4], axis=1).reshape(-1).astype(np.int8)
            values = np.where(nibbles > 7, nibbles - 16, nibbles)
        else:
            values = data.view(_DTYPES[stored.dtype])
        return values.astype(np.float32).reshape(tuple(layer.shape))

    def _cast(self, _layer: Any, x: Array) -> Array:
        return x

    def _shape(self, _layer: Any, x: Array) -> Array:
        return np.array(x.shape, np.int64)

    def _concatenation(self, layer: Any, *parts: Array) -> Array:
        return np.concatenate(parts, axis=self._typed(layer, "IConcatenationLayer").axis)

    def _gather(self, layer: Any, data: Array, indices: Array) -> Array:
        return np.take(data, indices, axis=self._typed(layer, "IGatherLayer").axis)

    def _matrix_multiply(self, layer: Any, a: Array, b: Array) -> Array:
        layer = self._typed(layer, "IMatrixMultiplyLayer")
        none = self.trt.MatrixOperation.NONE
        return (a if layer.op0 == none else a.T) @ (b if layer.op1 == none else b.T)

    def _elementwise(self, layer: Any, a: Array, b: Array) -> Array:
        operation = self._typed(layer, "IElementWiseLayer").op.name
        return {"SUM": np.add, "SUB": np.subtract, "PROD": np.multiply, "DIV": np.divide}[operation](a, b)

    def _reduce(self, layer: Any, x: Array) -> Array:
        layer = self._typed(layer, "IReduceLayer")
        assert layer.op == self.trt.ReduceOperation.AVG
        axes = tuple(axis for axis in range(x.ndim) if layer.axes >> axis & 1)
        return np.mean(x, axis=axes, keepdims=layer.keep_dims)

    def _unary(self, layer: Any, x: Array) -> Array:
        assert self._typed(layer, "IUnaryLayer").op == self.trt.UnaryOperation.SQRT
        return np.sqrt(x)

    def _activation(self, layer: Any, x: Array) -> Array:
        name = self._typed(layer, "IActivationLayer").type.name
        if name == "SIGMOID":
            return 1 / (1 + np.exp(-x))
        if name == "TANH":
            return np.tanh(x)
        kernel = KERNELS[("", "Gelu")]
        return kernel(x, approximate="tanh" if name == "GELU_TANH" else "none")[0]

    def _slice(self, layer: Any, x: Array, *shape: Array) -> Array:
        layer = self._typed(layer, "ISliceLayer")
        sizes = shape[-1] if shape else layer.shape
        assert tuple(layer.stride) == (1,) * x.ndim
        return x[tuple(slice(start, start + size) for start, size in zip(layer.start, sizes, strict=True))]

    def _shuffle(self, layer: Any, x: Array) -> Array:
        target = self._typed(layer, "IShuffleLayer").reshape_dims
        return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(target)])

    def _dequantize(self, layer: Any, q: Array, scale: Array) -> Array:
        axis = self._typed(layer, "IDequantizeLayer").axis
        if scale.ndim == 1:
            assert axis == 0 and len(scale) == len(q)
            return q * scale[:, None]
        return q * np.repeat(scale, q.shape[1] // scale.shape[1], axis=1)

    def _plugin_v3(self, layer: Any, query: Array, key: Array, value: Array, cache: Array, *rest: Array) -> Any:
        fields: PluginFields = self._typed(layer, "IPluginV3Layer").plugin.fields
        shape = fields.shape
        positions, query_start, context_lens, block_table, *tables = rest
        if shape.rotary_dim:
            rotate = KERNELS[(DOMAIN, "RotaryEmbedding")]
            query, key = (
                rotate(x, *tables, positions, num_heads=heads, rotary_dim=shape.rotary_dim)[0]
                for x, heads in ((query, shape.num_heads), (key, shape.num_kv_heads))
            )
        attend = KERNELS[(DOMAIN, "PagedAttention")]
        names = ("num_heads", "num_kv_heads", "head_dim", "scale", "window", "softcap")
        attributes = {name: getattr(shape, name) for name in names}
        step = (query_start, context_lens, block_table)
        assert math.isclose(cache.shape[3], shape.block_size)
        return attend(query, key, value, cache, *step, **attributes, layer=fields.layer)


def main(folder: Path, inputs: Path, outputs: Path) -> None:
    job, model = load_job(folder)
    made = JobNetwork(job, model, folder)
    weights = {weight.name: weight for weight in job.weights}
    with np.load(inputs) as arrays:
        values = NetworkValues(made, folder, weights, dict(arrays)).run()
    np.savez(outputs, **values)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
