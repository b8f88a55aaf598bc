"""The attention layers of a graph as the plugin sees them: rotary embedding and PagedAttention are one."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from plugins.kernels.shape import AttentionShape
from trtc.graph.ops import DOMAIN
from trtc.passes.rewriting import is_op, producer
from trtc.targets.tensorrt.refused import refused


@dataclass(frozen=True)
class AttentionLayer:
    """One plugin layer. ``query`` and ``key`` are not yet rotated; ``cos`` and ``sin`` are None without rotation."""

    node: ir.Node  # PagedAttention
    index: int  # of the model's layer
    shape: AttentionShape
    query: ir.Value
    key: ir.Value
    cos: ir.Value | None
    sin: ir.Value | None


def attention_layers(model: ir.Model, block_size: int, dtype: str) -> list[AttentionLayer]:
    """Every PagedAttention with the RotaryEmbedding before it, in order.

    Raises BuildError naming the node whose query and key are not rotated alike.
    """
    return [_layer(node, block_size, dtype) for node in model.graph if is_op(node, "PagedAttention", DOMAIN)]


def _layer(node: ir.Node, block_size: int, dtype: str) -> AttentionLayer:
    attributes = node.attributes
    heads, kv_heads, head_dim = (attributes[name].as_int() for name in ("num_heads", "num_kv_heads", "head_dim"))
    query, key = _rotation(node, 0), _rotation(node, 1)
    if (query is None) != (key is None) or (query and key and _tables(query) != _tables(key)):
        raise refused(node, "query and key are not rotated alike", "rotate both by the same tables, or neither")
    shape = AttentionShape(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        scale=attributes["scale"].as_float(),
        rotary_dim=query.attributes["rotary_dim"].as_int() if query else 0,
        window=attributes["window"].as_int(),
        softcap=attributes["softcap"].as_float(),
        compute_dtype=dtype,
    )
    inputs = [(rotation or node).inputs[0 if rotation else index] for index, rotation in enumerate((query, key))]
    assert inputs[0] is not None and inputs[1] is not None
    cos, sin = query.inputs[1:3] if query else (None, None)
    return AttentionLayer(node, attributes["layer"].as_int(), shape, inputs[0], inputs[1], cos, sin)


def _rotation(node: ir.Node, index: int) -> ir.Node | None:
    """The RotaryEmbedding that makes an input of PagedAttention, where there is one."""
    rotation = producer(node.inputs[index])
    return rotation if is_op(rotation, "RotaryEmbedding", DOMAIN) else None


def _tables(rotation: ir.Node) -> tuple[ir.Value | int | None, ...]:
    return (*rotation.inputs[1:4], rotation.attributes["rotary_dim"].as_int())
