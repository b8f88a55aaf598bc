"""GPT-2 (transformers' GPT2LMHeadModel): LayerNorm, learned positions, fused QKV, weights stored [in, out]."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from trtc.blocks.attention import attention, fused_qkv
from trtc.blocks.decoder import add_residual, stack_layers
from trtc.blocks.embedding import add_position_embedding, logits_of_wanted_rows, token_embedding
from trtc.blocks.mlp import conv1d_mlp
from trtc.blocks.norm import layer_norm
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def build(g: GraphBuilder, cfg: ModelConfig, w: WeightMap) -> ir.Model:
    root = "transformer." if w.has("transformer.wte.weight") else ""  # the hub's first checkpoints lack the prefix
    table, x = token_embedding(g, cfg, w, f"{root}wte.weight")
    x = add_position_embedding(g, cfg, w, x, f"{root}wpe.weight")
    norm = partial(layer_norm, g, w, epsilon=cfg.norm_eps)
    project = partial(fused_qkv, name="c_attn", transpose=True)

    def layer(x: ir.Value, index: int) -> tuple[ir.Value, ir.Value]:
        prefix = f"{root}h.{index}"
        normed = norm(x, prefix=f"{prefix}.ln_1")
        update, kv_out = attention(
            g,
            cfg,
            w,
            normed,
            f"{prefix}.attn",
            index,
            None,
            project=project,
            out_name="c_proj",
            transpose_out=True,
        )
        x = add_residual(g, x, update, "attention_residual")
        normed = norm(x, prefix=f"{prefix}.ln_2")
        return add_residual(g, x, conv1d_mlp(g, cfg, w, normed, f"{prefix}.mlp"), "mlp_residual"), kv_out

    x, kv_outs = stack_layers(g, cfg, x, layer)
    w.ignore(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")  # causal masks that old checkpoints store
    logits = logits_of_wanted_rows(g, cfg, w, x, lambda rows: norm(rows, prefix=f"{root}ln_f"), table)
    return g.finish(logits, kv_outs)
