"""Gemma 3 text models (transformers' Gemma3ForCausalLM).

RMSNorm before and after both halves of a layer with scales stored minus one, per-head query and key norms, sliding
windows with their own rotary base alternating with full layers, embeddings times sqrt(hidden), soft caps where set.
"""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from trtc.blocks.attention import attention
from trtc.blocks.decoder import add_residual, stack_layers
from trtc.blocks.embedding import logits_of_wanted_rows, token_embedding
from trtc.blocks.mlp import gated_mlp
from trtc.blocks.norm import rms_norm
from trtc.blocks.rope import layer_rope_tables
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def build(g: GraphBuilder, cfg: ModelConfig, w: WeightMap) -> ir.Model:
    table, x = token_embedding(g, cfg, w, "model.embed_tokens.weight")
    ropes = layer_rope_tables(g, cfg)
    norm = partial(rms_norm, g, w, epsilon=cfg.norm_eps, plus_one=True)

    def layer(x: ir.Value, index: int) -> tuple[ir.Value, ir.Value]:
        prefix = f"model.layers.{index}"
        normed = norm(x, prefix=f"{prefix}.input_layernorm")
        update, kv_out = attention(g, cfg, w, normed, f"{prefix}.self_attn", index, ropes[index], norm_plus_one=True)
        update = norm(update, prefix=f"{prefix}.post_attention_layernorm")
        x = add_residual(g, x, update, "attention_residual")
        normed = norm(x, prefix=f"{prefix}.pre_feedforward_layernorm")
        update = gated_mlp(g, cfg, w, normed, f"{prefix}.mlp")
        update = norm(update, prefix=f"{prefix}.post_feedforward_layernorm")
        return add_residual(g, x, update, "mlp_residual"), kv_out

    x, kv_outs = stack_layers(g, cfg, x, layer)
    logits = logits_of_wanted_rows(g, cfg, w, x, lambda rows: norm(rows, prefix="model.norm"), table)
    return g.finish(logits, kv_outs)
