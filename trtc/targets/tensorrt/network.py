"""A step graph as a TensorRT network, strongly typed: float values are the engine's dtype, norms and logits float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from trtc.errors import BuildError
from trtc.graph import contract
from trtc.graph.shapes import value_type
from trtc.targets.tensorrt.attention import AttentionLayer
from trtc.targets.tensorrt.flavour import Flavour, Module
from trtc.targets.tensorrt.log import Log
from trtc.targets.tensorrt.plugin import PluginFields
from trtc.targets.tensorrt.refused import refused
from trtc.targets.tensorrt.weight_file import WeightFile

Tensor = Any  # ITensor
Layer = Any  # ILayer

_TRT_TYPES = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "int4": "int4",
    "int32": "int32",
    "int64": "int64",
}


@dataclass(frozen=True)
class NetworkOptions:
    """What the network needs of the build's settings. ``dtype`` is float16 or bfloat16."""

    flavour: Flavour
    dtype: str
    make_plugin: Callable[[PluginFields], Any]


class NetworkBuilder:
    """What the handlers of handlers.py write to. Every layer gets the name of the node it comes from.

    Refusals of TensorRT, a None where a layer was asked for or an error in its log, are BuildErrors naming the node.
    """

    def __init__(
        self, trt: Module, network: Any, log: Log, options: NetworkOptions, model: ir.Model, weights: WeightFile
    ) -> None:
        self.trt = trt
        self.network = network
        self.options = options
        self.attention: dict[ir.Node, tuple[AttentionLayer, PluginFields]] = {}
        self.plugin_layers: dict[int, Layer] = {}  # made beforehand, by number of the model's layer
        self._log = log
        self._weights = weights
        self._tensors: dict[ir.Value, Tensor] = {}
        self._constants: dict[tuple[str, str], Tensor] = {}
        self._shared: dict[str, Tensor] = {}
        self._keep: list[Any] = []  # arrays that TensorRT reads when it builds
        self._node: ir.Node | None = None
        self._names: dict[str, int] = {}  # of layers, and how often each was wanted
        self._kv_dtype = self.type_of(options.dtype)
        self._inputs = {value.name or "": value for value in model.graph.inputs}

    def type_of(self, dtype: str) -> Any:
        return getattr(self.trt, _TRT_TYPES[dtype])

    @property
    def compute(self) -> Any:
        """The engine's data type."""
        return self.type_of(self.options.dtype)

    def add_inputs(self) -> None:
        """Every binding of the graph that the network lacks; the plugin's came with its layers."""
        have = {self.network.get_input(i).name: self.network.get_input(i) for i in range(self.network.num_inputs)}
        for name, value in self._inputs.items():
            if self._weights.find(name) is not None:
                continue  # a weight that the graph file does not hold
            if name not in have:
                have[name] = self._checked(self.network.add_input(name, self._input_type(value), _dims(value)), name)
            self._tensors[value] = have[name]

    def _input_type(self, value: ir.Value) -> Any:
        return self.trt.int32 if value.dtype == ir.DataType.INT32 else self._kv_dtype

    def start(self, node: ir.Node) -> None:
        """Layers from now on belong to ``node``."""
        self._node = node

    def finish(self) -> None:
        """Raises BuildError when TensorRT logged an error about the node's layers."""
        assert self._node is not None
        self._log.check(f"{self._node.op_type} {self._node.name!r}")

    def named(self, layer: Layer, what: str = "") -> Layer:
        """``layer``, which must not be None, with a name that says where it comes from."""
        node = self._node
        assert node is not None
        if layer is None:
            raise self._log.error(f"{node.op_type} {node.name!r}", f"it makes no layer for {what or node.op_type}")
        name = ".".join(part for part in (node.name or node.op_type, what) if part)
        count = self._names[name] = self._names.get(name, 0) + 1
        layer.name = name if count == 1 else f"{name}.{count}"
        return layer

    def out(self, layer: Layer, what: str = "") -> Tensor:
        """The one output of a new layer."""
        return self.named(layer, what).get_output(0)

    def bind(self, value: ir.Value, tensor: Tensor) -> None:
        self._tensors[value] = tensor

    def has(self, value: ir.Value | None) -> bool:
        return value in self._tensors

    def tensor(self, value: ir.Value | None, dtype: str | None = None) -> Tensor:
        """The tensor of an activation, binding or weight; ``dtype`` casts it."""
        assert value is not None
        tensor = self._tensors.get(value)
        if tensor is None:
            tensor = self.weight(value)
        return tensor if dtype is None else self.cast(tensor, self.type_of(dtype))

    def binding(self, name: str) -> Tensor:
        """A step input."""
        return self._tensors[self._inputs[name]]

    def cast(self, tensor: Tensor, kind: Any) -> Tensor:
        return tensor if tensor.dtype == kind else self.out(self.network.add_cast(tensor, kind), "cast")

    def weight(self, value: ir.Value, shape: Sequence[int] | None = None) -> Tensor:
        """A stored weight as a constant, in its own shape or in ``shape``; made once."""
        found = self._weights.find(value.name or "")
        assert self._node is not None
        if found is None:
            raise refused(self._node, f"{value.name!r} is neither computed nor a weight", "fold it into an initializer")
        entry, address = found
        dims = tuple(shape or entry.shape)
        key = (entry.name, str(dims))
        if key not in self._constants:
            kind = self.type_of(entry.dtype)
            weights = self.trt.Weights(kind, address, int(np.prod(entry.shape)))
            constant = self.network.add_constant(dims, weights)
            if constant is None:
                raise self._log.error(f"the weight {entry.name}", f"it takes no constant of {list(dims)} {entry.dtype}")
            constant.name = entry.name if len(dims) == len(entry.shape) else f"{entry.name}.{len(dims)}d"
            self._constants[key] = constant.get_output(0)
        return self._constants[key]

    def constant(self, values: np.ndarray[Any, Any], dtype: str | None = None) -> Tensor:
        """A small constant that the graph does not store."""
        array = np.ascontiguousarray(values)
        kept = array if dtype != "bfloat16" else _bfloat16(array)
        self._keep.append(kept)
        if dtype == "bfloat16":
            weights = self.trt.Weights(self.trt.bfloat16, kept.ctypes.data, kept.size)
        else:
            weights = self.trt.Weights(kept)
        return self.out(self.network.add_constant(array.shape, weights), "constant")

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """A number that broadcasts over ``like``, of its type."""
        kinds = {self.trt.float32: "float32", self.trt.float16: "float16", self.trt.bfloat16: "bfloat16"}
        dtype = kinds[like.dtype]
        wide = np.full((1,) * len(like.shape), value, np.float16 if dtype == "float16" else np.float32)
        return self.constant(wide, dtype)

    def shape_of_rows(self, value: ir.Value, columns: int) -> Tensor:
        """int64 [2]: the number of rows of ``value``, in this step, and ``columns``."""
        rows = value_type(value).shape[0]
        source = {contract.TOKENS: contract.INPUT_IDS, contract.LOGIT_ROWS: contract.LOGIT_ROW_IDS}.get(rows)
        assert source is not None and self._node is not None, f"{value.name} has {rows} rows"
        if source.name not in self._shared:
            self._shared[source.name] = self.out(self.network.add_shape(self.binding(source.name)), "rows")
        width = self.constant(np.array([columns], np.int64))
        joined = self.named(self.network.add_concatenation([self._shared[source.name], width]), "shape")
        joined.axis = 0
        return joined.get_output(0)

    def binary(self, a: Tensor, b: Tensor, operation: str, what: str = "") -> Tensor:
        kind = getattr(self.trt.ElementWiseOperation, operation)
        return self.out(self.network.add_elementwise(a, b, kind), what or operation.lower())

    def activate(self, x: Tensor, kind: str) -> Tensor:
        """silu, gelu, gelu_tanh or tanh."""
        types = self.trt.ActivationType
        if kind == "silu":
            gate = self.out(self.network.add_activation(x, types.SIGMOID), "sigmoid")
            return self.binary(x, gate, "PROD", "silu")
        which = {"gelu": types.GELU_ERF, "gelu_tanh": types.GELU_TANH, "tanh": types.TANH}[kind]
        return self.out(self.network.add_activation(x, which), kind)

    def mark_outputs(self, outputs: Sequence[ir.Value]) -> None:
        """Name and mark the logits; the KV caches are marked where the plugin layers are made."""
        marked = {self.network.get_output(i).name for i in range(self.network.num_outputs)}
        for value in outputs:
            tensor = self._tensors.get(value)
            if tensor is None:
                raise BuildError(f"no node of the graph computes {value.name}")
            if value.name not in marked:
                tensor.name = value.name
                self.network.mark_output(tensor)
        self._log.check()

    def _checked(self, tensor: Tensor, name: str) -> Tensor:
        if tensor is None:
            raise self._log.error(f"the binding {name}", "it was refused")
        return tensor


def _dims(value: ir.Value) -> tuple[int, ...]:
    """Dimensions as TensorRT writes them: -1 for those that a step decides."""
    return tuple(dim if isinstance(dim, int) else -1 for dim in value_type(value).shape)


def _bfloat16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16)
