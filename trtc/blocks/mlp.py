"""Feed-forward blocks. Gated ones (Shazeer, https://arxiv.org/abs/2002.05202) compute down(act(gate x) * up x)."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.blocks.linear import linear
from trtc.checkpoint.model_config import Activation, ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder

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
        gate = linear(g, w, x, f"{prefix}.gate_proj", cfg.intermediate_size, bias=cfg.mlp_bias)
        up = linear(g, w, x, f"{prefix}.up_proj", cfg.intermediate_size, bias=cfg.mlp_bias)
        gated = g.op("Mul", activation(g, gate, cfg.activation), up, name="gated")
        return linear(g, w, gated, f"{prefix}.down_proj", cfg.hidden_size, bias=cfg.mlp_bias)


def fused_gated_mlp(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str) -> ir.Value:
    """``gate_up_proj`` (gate first) and ``down_proj``. x float [tokens, hidden] -> same shape."""
    with g.scope(prefix.rpartition(".")[2]):
        size = cfg.intermediate_size
        packed = linear(g, w, x, f"{prefix}.gate_up_proj", 2 * size, bias=cfg.mlp_bias)
        gate, up = g.emit("Split", packed, g.ints(size, size), axis=1, name="gate_up_split")
        gated = g.op("Mul", activation(g, gate, cfg.activation), up, name="gated")
        return linear(g, w, gated, f"{prefix}.down_proj", cfg.hidden_size, bias=cfg.mlp_bias)


def conv1d_mlp(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str) -> ir.Value:
    """GPT-2's ungated ``c_fc`` and ``c_proj``, stored [in, out]. x float [tokens, hidden] -> same shape."""
    with g.scope(prefix.rpartition(".")[2]):
        inner = linear(g, w, x, f"{prefix}.c_fc", cfg.intermediate_size, bias=cfg.mlp_bias, transpose=True)
        acted = activation(g, inner, cfg.activation)
        return linear(g, w, acted, f"{prefix}.c_proj", cfg.hidden_size, bias=cfg.mlp_bias, transpose=True)
