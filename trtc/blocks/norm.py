"""RMSNorm (https://arxiv.org/abs/1910.07467) and LayerNorm (https://arxiv.org/abs/1607.06450)."""

from __future__ import annotations

import onnx_ir as ir

from trtc.blocks.linear import columns
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def rms_norm(
    g: GraphBuilder, w: WeightMap, x: ir.Value, prefix: str, epsilon: float, *, plus_one: bool = False
) -> ir.Value:
    """x float [..., columns] -> same shape, scaled by ``<prefix>.weight``.

    ``plus_one``: the checkpoint stores the scale minus one (Gemma); the addition is left to constant folding.
    """
    name = prefix.rpartition(".")[2]
    scale = g.weight(w.take(f"{prefix}.weight", (columns(x),)))
    if plus_one:
        scale = g.op("Add", scale, g.scalar(1.0), name=f"{name}.scale")
    return g.op("RMSNormalization", x, scale, axis=-1, epsilon=epsilon, name=name)


def head_rms_norm(
    g: GraphBuilder,
    w: WeightMap,
    x: ir.Value,
    prefix: str,
    epsilon: float,
    *,
    head_dim: int,
    plus_one: bool = False,
) -> ir.Value:
    """RMSNorm of each head alone: x float [tokens, heads * head_dim] -> same shape."""
    name, width = prefix.rpartition(".")[2], columns(x)
    heads = g.op("Reshape", x, g.ints(0, width // head_dim, head_dim), name=f"{name}.heads")
    normed = rms_norm(g, w, heads, prefix, epsilon, plus_one=plus_one)
    return g.op("Reshape", normed, g.ints(0, width), name=f"{name}.rows")


def layer_norm(g: GraphBuilder, w: WeightMap, x: ir.Value, prefix: str, epsilon: float) -> ir.Value:
    """x float [rows, columns] -> same shape, with ``<prefix>.weight`` and ``<prefix>.bias``."""
    shape = (columns(x),)
    scale, bias = (g.weight(w.take(f"{prefix}.{part}", shape)) for part in ("weight", "bias"))
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon, name=prefix.rpartition(".")[2])
