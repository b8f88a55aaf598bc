"""Stacks of decoder layers around a residual stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx_ir as ir

from trtc.blocks.attention import Projection, attention, separate_qkv
from trtc.blocks.embedding import logits_of_wanted_rows, token_embedding
from trtc.blocks.mlp import Mlp, gated_mlp
from trtc.blocks.norm import rms_norm
from trtc.blocks.rope import layer_rope_tables
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder

# (x [tokens, hidden], layer) -> (x after the layer, the layer's KV cache after the step)
Layer = Callable[[ir.Value, int], tuple[ir.Value, ir.Value]]


def stack_layers(g: GraphBuilder, cfg: ModelConfig, x: ir.Value, layer: Layer) -> tuple[ir.Value, list[ir.Value]]:
    """x float [tokens, hidden] through all layers, nodes named ``layers.<i>. ...`` -> (x, KV caches)."""
    kv_outs = []
    for index in range(cfg.num_layers):
        with g.scope(f"layers.{index}"):
            x, kv_out = layer(x, index)
        kv_outs.append(kv_out)
    return x, kv_outs


def add_residual(g: GraphBuilder, x: ir.Value, update: ir.Value, name: str) -> ir.Value:
    """x + update, both float [tokens, hidden]."""
    return g.op("Add", x, update, name=name)


def llama_family(
    g: GraphBuilder,
    cfg: ModelConfig,
    w: WeightMap,
    *,
    project: Projection = separate_qkv,
    mlp: Mlp = gated_mlp,
) -> ir.Model:
    """RMSNorm before attention and before the MLP, tensors named as in transformers' LlamaForCausalLM."""
    table, x = token_embedding(g, cfg, w, "model.embed_tokens.weight")
    ropes = layer_rope_tables(g, cfg)
    norm = partial(rms_norm, g, w, epsilon=cfg.norm_eps)

    def layer(x: ir.Value, index: int) -> tuple[ir.Value, ir.Value]:
        prefix = f"model.layers.{index}"
        normed = norm(x, prefix=f"{prefix}.input_layernorm")
        update, kv_out = attention(g, cfg, w, normed, f"{prefix}.self_attn", index, ropes[index], project=project)
        x = add_residual(g, x, update, "attention_residual")
        normed = norm(x, prefix=f"{prefix}.post_attention_layernorm")
        return add_residual(g, x, mlp(g, cfg, w, normed, f"{prefix}.mlp"), "mlp_residual"), kv_out

    x, kv_outs = stack_layers(g, cfg, x, layer)
    w.ignore(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # old checkpoints store these constants
    logits = logits_of_wanted_rows(g, cfg, w, x, lambda rows: norm(rows, prefix="model.norm"), table)
    return g.finish(logits, kv_outs)
