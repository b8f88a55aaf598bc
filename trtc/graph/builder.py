"""``GraphBuilder``: typed emission of a step graph over onnx-ir. Every value gets its dtype and shape as it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from trtc.checkpoint.model_config import ModelConfig
from trtc.errors import GraphError
from trtc.graph import contract, ops
from trtc.graph.shapes import FLOAT, INT32, ValueType, infer_outputs
from trtc.graph.shard import Shard, kv_heads

IR_VERSION = 12  # the first that holds opset 24
WEIGHT_META = "trtc.weight"  # initializer.meta key: the LazyWeight it reads


class LazyWeight(Protocol):
    """What an initializer reads: a checkpoint's ``Weight``, or one that a pass makes of several.

    ``dtype`` names what ``read`` gives: "float32", or "bfloat16" where the checkpoint stores that.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...

    def read(self) -> np.ndarray[Any, Any]: ...
    def read_rows(self, start: int, stop: int) -> np.ndarray[Any, Any]: ...


def make_node(
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Any] | None = None,
    *,
    domain: str = "",
    name: str,
) -> ir.Node:
    """A node whose outputs are typed by the operator's rule and named after it. Passes use this too.

    One output takes the node's name, several get ``<name>.0``, ``<name>.1``, ... Raises GraphError naming the node.
    """
    node = ir.node(op_type, inputs, attributes or {}, domain=domain, name=name)
    try:
        types = infer_outputs(node)
    except GraphError as error:
        raise GraphError(f"node {name!r} ({op_type}): {error}") from error
    node.resize_outputs(len(types))
    for index, (output, kind) in enumerate(zip(node.outputs, types, strict=True)):
        output.name = name if len(types) == 1 else f"{name}.{index}"
        output.dtype = kind.dtype
        output.shape = ir.Shape(kind.shape)
    return node


def make_value(name: str, kind: ValueType) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(kind.shape), type=ir.TensorType(kind.dtype))


def weight_initializer(weight: LazyWeight, name: str | None = None) -> ir.Value:
    """A float32 initializer that reads the checkpoint each time its value is asked for, and keeps nothing.

    ``meta["trtc.weight"]`` is the weight itself, for those who want its stored dtype or single rows.
    """

    def read() -> ir.TensorProtocol:
        return ir.Tensor(np.asarray(weight.read(), dtype=np.float32))

    name = name or weight.name
    shape = ir.Shape(weight.shape)
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(FLOAT))
    value.const_value = ir.LazyTensor(read, dtype=FLOAT, shape=shape, name=name)
    value.meta[WEIGHT_META] = weight
    return value


class GraphBuilder:
    """Builds the step graph of one model, or of one rank's share of it; recipes and blocks call it.

    The step inputs of contract.py are attributes: ``input_ids``, ``position_ids``, ``query_start``, ``context_lens``,
    ``block_table``, ``logit_rows``; ``kv_caches[layer]`` are the KV pools. KV values are typed float here: the target
    chooses the storage type.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        block_size: int,
        name: str | None = None,
        max_seq_len: int | None = None,
        shard: Shard | None = None,
    ) -> None:
        """``max_seq_len`` (tokens) bounds position_ids and sizes the rope tables; None: all the model's positions."""
        self.config = model_config
        self.shard = shard or Shard()
        self.block_size = block_size
        self.max_seq_len = max_seq_len or model_config.max_position_embeddings
        self.name = name or model_config.model_type
        self.input_ids = _input(contract.INPUT_IDS)
        self.position_ids = _input(contract.POSITION_IDS)
        self.query_start = _input(contract.QUERY_START)
        self.context_lens = _input(contract.CONTEXT_LENS)
        self.block_table = _input(contract.BLOCK_TABLE)
        self.logit_rows = _input(contract.LOGIT_ROW_IDS)
        local_kv_heads = len(kv_heads(model_config).of(self.shard)) // model_config.head_dim
        self.kv_caches = [
            _input(contract.kv_cache(layer, local_kv_heads, model_config.head_dim, block_size))
            for layer in range(model_config.num_layers)
        ]
        self._nodes: list[ir.Node] = []
        self._initializers: dict[str, ir.Value] = {}
        self._scopes: list[str] = []
        self._names: set[str] = {value.name or "" for value in self._inputs()}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of nodes made inside: ``with g.scope("layers.0"): ...``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def weight(self, weight: LazyWeight, name: str | None = None) -> ir.Value:
        """Initializer for a checkpoint tensor, read lazily. Asking again for the same Weight gives the same value."""
        value = weight_initializer(weight, name)
        known = self._initializers.get(value.name or "")
        if known is not None and known.meta.get(WEIGHT_META) is weight:
            return known
        return self._add_initializer(value)

    def constant(self, array: np.ndarray[Any, Any], name: str) -> ir.Value:
        """Initializer for a small constant. Asking again for an equal constant of that name gives the same value."""
        known = self._initializers.get(name)
        if known is not None and known.const_value is not None:
            stored = known.const_value.numpy()
            if stored.dtype == array.dtype and np.array_equal(stored, array):
                return known
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype))
        value.const_value = tensor
        return self._add_initializer(value)

    def ints(self, *values: int) -> ir.Value:
        """Constant int64 vector: the target of a Reshape, the sizes of a Split."""
        return self.constant(np.array(values, np.int64), "ints." + "_".join(map(str, values)))

    def scalar(self, value: float) -> ir.Value:
        """Constant float32 scalar."""
        return self.constant(np.array(value, np.float32), f"scalar.{value!r}")

    def emit(
        self, op_type: str, *inputs: ir.Value | None, domain: str = "", name: str | None = None, **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """Append a node and return its typed outputs. Raises GraphError when the operator's rule refuses it."""
        node = make_node(op_type, inputs, attributes, domain=domain, name=self._node_name(op_type, name))
        self._nodes.append(node)
        return tuple(node.outputs)

    def op(
        self, op_type: str, *inputs: ir.Value | None, domain: str = "", name: str | None = None, **attributes: Any
    ) -> ir.Value:
        """:meth:`emit` for operators with one output."""
        outputs = self.emit(op_type, *inputs, domain=domain, name=name, **attributes)
        if len(outputs) != 1:
            raise GraphError(f"{op_type} has {len(outputs)} outputs: use emit()")
        return outputs[0]

    def finish(self, logits: ir.Value, kv_outs: Sequence[ir.Value]) -> ir.Model:
        """Name the outputs as contract.py does and return the model. ``kv_outs`` has one value per layer."""
        if len(kv_outs) != len(self.kv_caches):
            raise GraphError(f"got {len(kv_outs)} KV outputs, expected one per layer: {len(self.kv_caches)}")
        logits.name = contract.logits(self.config.vocab_size).name
        for layer, value in enumerate(kv_outs):
            value.name = contract.kv_cache_out(layer)
        graph = ir.Graph(
            self._inputs(),
            [logits, *kv_outs],
            nodes=self._nodes,
            initializers=list(self._initializers.values()),
            opset_imports={"": ops.ONNX_OPSET, ops.DOMAIN: ops.DOMAIN_VERSION},
            name=self.name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="trtc")

    def _inputs(self) -> list[ir.Value]:
        return [
            self.input_ids,
            self.position_ids,
            self.query_start,
            self.context_lens,
            self.block_table,
            self.logit_rows,
            *self.kv_caches,
        ]

    def _add_initializer(self, value: ir.Value) -> ir.Value:
        name = value.name or ""
        if name in self._names:
            raise GraphError(f"initializer {name!r} would reuse the name of another value")
        self._names.add(name)
        self._initializers[name] = value
        return value

    def _node_name(self, op_type: str, name: str | None) -> str:
        base = ".".join([*self._scopes, name or op_type.lower()])
        unique, count = base, 1
        while unique in self._names:
            count += 1
            unique = f"{base}_{count}"
        self._names.add(unique)
        return unique


def _input(binding: contract.Binding) -> ir.Value:
    return make_value(binding.name, ValueType(INT32 if binding.dtype == "int32" else FLOAT, binding.shape))
