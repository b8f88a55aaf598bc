"""The plugin layers of a network.

TensorRT adds them with ``add_plugin_v3``. TensorRT-RTX has no such call: an ONNX graph of nothing but the plugins is
parsed into the empty network, and each layer's inputs are replaced when the tensors they stand for exist.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx import TensorProto, helper

from trtc.graph import contract
from trtc.graph.ops import ONNX_OPSET
from trtc.targets.tensorrt import plugin
from trtc.targets.tensorrt.attention import AttentionLayer
from trtc.targets.tensorrt.log import Log
from trtc.targets.tensorrt.network import NetworkBuilder, Tensor
from trtc.targets.tensorrt.plugin import PluginFields

_ONNX_TYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
_PREFIX = "trtc.attention."  # of the names in the skeleton
_STEP = (contract.POSITION_IDS, contract.QUERY_START, contract.CONTEXT_LENS, contract.BLOCK_TABLE)


def parse_plugins(trt: Any, network: Any, log: Log, plugins: list[PluginFields], dtype: str) -> dict[int, Any]:
    """Add a layer for each of ``plugins`` to the empty network, with its real KV cache and step inputs; by layer.

    Query, key, value and the tables are step inputs too for now: whatever the network has as an input stays one.
    """
    model = _skeleton(plugins, dtype)
    parser = trt.OnnxParser(network, log.logger)
    if not parser.parse(model.SerializeToString()):
        reasons = "; ".join(parser.get_error(i).desc() for i in range(parser.num_errors))
        raise log.error("the attention plugins", reasons)
    layers = {}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.name.startswith(_PREFIX):
            layers[int(layer.name.removeprefix(_PREFIX))] = layer
    missing = [fields.layer for fields in plugins if fields.layer not in layers]
    if missing:
        raise log.error(f"the attention plugin of layer {missing[0]}", "the parser made no layer for it")
    return layers


def connect_attention(net: NetworkBuilder, node: ir.Node) -> tuple[Tensor, Tensor]:
    """The attended rows and the KV cache of a PagedAttention."""
    layer, fields = net.attention[node]
    inputs = _inputs(net, layer)
    if net.options.flavour.adds_plugins:
        made = net.named(net.network.add_plugin_v3(inputs, [], net.options.make_plugin(fields)))
        cache = made.get_output(plugin.KV_CACHE_OUTPUT)
    else:
        made = net.plugin_layers[layer.index]
        for index, tensor in enumerate(inputs):
            if not plugin.KV_CACHE_INPUT <= index < plugin.KV_CACHE_INPUT + 1 + len(_STEP):
                made.set_input(index, tensor)
        net.named(made)
        cache = made.get_output(plugin.KV_CACHE_OUTPUT)
    return made.get_output(0), cache


def _inputs(net: NetworkBuilder, layer: AttentionLayer) -> list[Tensor]:
    node = layer.node
    values = [layer.query, layer.key, node.inputs[2], node.inputs[3]]
    tensors = [net.tensor(value) for value in values]
    tensors += [net.binding(binding.name) for binding in _STEP]
    if layer.cos is not None:
        tensors += [net.tensor(layer.cos), net.tensor(layer.sin)]
    return tensors


def _skeleton(plugins: list[PluginFields], dtype: str) -> Any:
    onnx_type = _ONNX_TYPES[dtype]
    inputs = [_value(binding.name, TensorProto.INT32, binding.shape) for binding in _STEP]
    nodes, outputs = [], []
    for fields in plugins:
        shape = fields.shape
        cache = contract.kv_cache(fields.layer, shape.num_kv_heads, shape.head_dim, shape.block_size)
        cache_out = contract.kv_cache_out(fields.layer)
        inputs.append(_value(cache.name, onnx_type, cache.shape))
        outputs.append(_value(cache_out, onnx_type, cache.shape))
        attributes: dict[str, Any] = dict(fields.values())
        tables = [contract.POSITION_IDS.name] * 2 if shape.rotary_dim else []
        nodes.append(
            helper.make_node(
                plugin.NAME,
                [cache.name] * 4 + [binding.name for binding in _STEP] + tables,
                [f"{_PREFIX}{fields.layer}.output", cache_out],
                name=f"{_PREFIX}{fields.layer}",
                domain=plugin.NAMESPACE,
                plugin_version=plugin.VERSION,
                plugin_namespace=plugin.NAMESPACE,
                **attributes,
            )
        )
    graph = helper.make_graph(nodes, "plugins", inputs, outputs)
    opsets = [helper.make_opsetid("", ONNX_OPSET), helper.make_opsetid(plugin.NAMESPACE, int(plugin.VERSION))]
    return helper.make_model(graph, opset_imports=opsets)


def _value(name: str, onnx_type: int, shape: tuple[contract.Dim, ...]) -> Any:
    return helper.make_tensor_value_info(name, onnx_type, list(shape))
