"""The attention layers of a graph as the plugin sees them: rotary embedding and PagedAttention are one."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from trtc.graph.ops import DOMAIN
from trtc.passes.rewriting import is_op, producer
from trtc.targets.tensorrt.refused import refused

HEAD_DIMS = (64, 80, 96, 128, 256)
MAX_GROUP = 8  # query heads that share one KV head


@dataclass(frozen=True)
class AttentionShape:
    """One attention layer, as the fields of the plugin name it; what its kernels are compiled for."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    scale: float
    rotary_dim: int = 0  # channels of each head that are rotated, 0 for none
    window: int = 0  # positions a row sees, itself included, 0 for all
    softcap: float = 0.0  # 0 for none
    compute_dtype: str = "float16"  # or bfloat16
    cache_dtype: str = "auto"  # auto: the compute dtype; or float8_e4m3


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

    Raises BuildError naming the node when no kernel can run it: a head size or number of heads that none is written
    for, or a rotation that is not that of query and key alike.
    """
    return [_layer(node, block_size, dtype) for node in model.graph if is_op(node, "PagedAttention", DOMAIN)]


def _layer(node: ir.Node, block_size: int, dtype: str) -> AttentionLayer:
    attributes = node.attributes
    heads, kv_heads, head_dim = (attributes[name].as_int() for name in ("num_heads", "num_kv_heads", "head_dim"))
    if head_dim not in HEAD_DIMS:
        raise refused(
            node,
            f"its heads have {head_dim} channels",
            f"the attention kernels are written for {', '.join(map(str, HEAD_DIMS))}",
        )
    if heads // kv_heads > MAX_GROUP:
        raise refused(
            node,
            f"{heads // kv_heads} query heads share a key head",
            f"the attention kernels take at most {MAX_GROUP}",
        )
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
