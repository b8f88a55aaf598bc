"""Feed-forward blocks. Gated ones (Shazeer, https://arxiv.org/abs/2002.05202) compute down(act(gate x) * up x)."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.blocks.linear import column_parallel, row_parallel
from trtc.checkpoint.model_config import Activation, ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder
from trtc.graph.shard import mlp_channels

# (builder, config, weights, x [tokens, hidden], prefix) -> [tokens, hidden]
Mlp = Callable[[GraphBuilder, ModelConfig, WeightMap, ir.Value, str], ir.Value]


def activation(g: GraphBuilder, x: ir.Value, kind: Activation) -> ir.Value:
    """x float, any shape -> same shape."""
    if kind == "silu":
        return g.op("Swish", x, name="act")
    return g.op("Gelu", x, approximate="tanh" if kind == "gelu_tanh" else "none", name="act")


def gated_mlp(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str) -> ir.Value:
    """``gate_proj``, ``up_proj`` and ``down_proj``. x float [tokens, hidden] -> same shape."""
    with g.scope(prefix.rpartition(".")[2]):
        inner = mlp_channels(cfg)
        gate = column_parallel(g, w, x, f"{prefix}.gate_proj", [inner], bias=cfg.mlp_bias)
        up = column_parallel(g, w, x, f"{prefix}.up_proj", [inner], bias=cfg.mlp_bias)
        gated = g.op("Mul", activation(g, gate, cfg.activation), up, name="gated")
        return row_parallel(g, w, gated, f"{prefix}.down_proj", inner, cfg.hidden_size, bias=cfg.mlp_bias)


def fused_gated_mlp(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str) -> ir.Value:
    """``gate_up_proj`` (gate first) and ``down_proj``. x float [tokens, hidden] -> same shape."""
    with g.scope(prefix.rpartition(".")[2]):
        inner = mlp_channels(cfg)
        size = len(inner.of(g.shard))
        packed = column_parallel(g, w, x, f"{prefix}.gate_up_proj", [inner, inner], bias=cfg.mlp_bias)
        gate, up = g.emit("Split", packed, g.ints(size, size), axis=1, name="gate_up_split")
        gated = g.op("Mul", activation(g, gate, cfg.activation), up, name="gated")
        return row_parallel(g, w, gated, f"{prefix}.down_proj", inner, cfg.hidden_size, bias=cfg.mlp_bias)


def conv1d_mlp(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str) -> ir.Value:
    """GPT-2's ungated ``c_fc`` and ``c_proj``, stored [in, out]. x float [tokens, hidden] -> same shape."""
    with g.scope(prefix.rpartition(".")[2]):
        inner, bias = mlp_channels(cfg), cfg.mlp_bias
        expanded = column_parallel(g, w, x, f"{prefix}.c_fc", [inner], bias=bias, transpose=True)
        acted = activation(g, expanded, cfg.activation)
        return row_parallel(g, w, acted, f"{prefix}.c_proj", inner, cfg.hidden_size, bias=bias, transpose=True)
