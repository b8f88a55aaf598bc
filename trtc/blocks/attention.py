"""Causal self-attention over the paged KV cache: projections, per-head norms, rotation, attention."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.blocks.linear import column_parallel, columns, row_parallel
from trtc.blocks.norm import head_rms_norm
from trtc.blocks.rope import RopeTables, rotate
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder
from trtc.graph.shard import kv_heads, query_heads

# (builder, config, weights, x [tokens, hidden], prefix) -> a rank's query, key, value [tokens, (kv_)heads * head_dim]
Projection = Callable[[GraphBuilder, ModelConfig, WeightMap, ir.Value, str], tuple[ir.Value, ir.Value, ir.Value]]


def separate_qkv(
    g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, prefix: str
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """``q_proj``, ``k_proj`` and ``v_proj``. x float [tokens, hidden]."""
    query = column_parallel(g, w, x, f"{prefix}.q_proj", [query_heads(cfg)], bias=cfg.qkv_bias)
    key = column_parallel(g, w, x, f"{prefix}.k_proj", [kv_heads(cfg)], bias=cfg.qkv_bias)
    value = column_parallel(g, w, x, f"{prefix}.v_proj", [kv_heads(cfg)], bias=cfg.qkv_bias)
    return query, key, value


def fused_qkv(
    g: GraphBuilder,
    cfg: ModelConfig,
    w: WeightMap,
    x: ir.Value,
    prefix: str,
    *,
    name: str = "qkv_proj",
    transpose: bool = False,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """One matrix ``name`` whose outputs are query, key and value in that order. x float [tokens, hidden]."""
    parts = [query_heads(cfg), kv_heads(cfg), kv_heads(cfg)]
    packed = column_parallel(g, w, x, f"{prefix}.{name}", parts, bias=cfg.qkv_bias, transpose=transpose)
    sizes = g.ints(*(len(part.of(g.shard)) for part in parts))
    query, key, value = g.emit("Split", packed, sizes, axis=1, name="qkv_split")
    return query, key, value


def attention(
    g: GraphBuilder,
    cfg: ModelConfig,
    w: WeightMap,
    x: ir.Value,
    prefix: str,
    layer: int,
    rope: RopeTables | None,
    *,
    project: Projection = separate_qkv,
    out_name: str = "o_proj",
    transpose_out: bool = False,
    norm_plus_one: bool = False,
) -> tuple[ir.Value, ir.Value]:
    """x float [tokens, hidden] -> (float [tokens, hidden], the layer's KV cache after the step)."""
    with g.scope(prefix.rpartition(".")[2]):
        query, key, value = project(g, cfg, w, x, prefix)
        if cfg.qk_norm:
            query, key = (
                head_rms_norm(
                    g, w, part, f"{prefix}.{name}", cfg.norm_eps, head_dim=cfg.head_dim, plus_one=norm_plus_one
                )
                for part, name in ((query, "q_norm"), (key, "k_norm"))
            )
        if rope is not None:
            query = rotate(g, query, rope, cfg.head_dim, "q_rope")
            key = rotate(g, key, rope, cfg.head_dim, "k_rope")
        attended, kv_out = paged_attention(g, cfg, query, key, value, layer)
        out = row_parallel(
            g,
            w,
            attended,
            f"{prefix}.{out_name}",
            query_heads(cfg),
            cfg.hidden_size,
            bias=cfg.attention_out_bias,
            transpose=transpose_out,
        )
    return out, kv_out


def paged_attention(
    g: GraphBuilder, cfg: ModelConfig, query: ir.Value, key: ir.Value, value: ir.Value, layer: int
) -> tuple[ir.Value, ir.Value]:
    """query float [tokens, heads * head_dim], key and value [tokens, kv_heads * head_dim] -> (as query, KV cache)."""
    attended, kv_out = g.emit(
        "PagedAttention",
        query,
        key,
        value,
        g.kv_caches[layer],
        g.query_start,
        g.context_lens,
        g.block_table,
        domain=ops.DOMAIN,
        name="attention",
        layer=layer,
        num_heads=columns(query) // cfg.head_dim,
        num_kv_heads=columns(key) // cfg.head_dim,
        head_dim=cfg.head_dim,
        scale=cfg.attention_scale,
        window=cfg.layer_windows[layer] or 0,
        softcap=cfg.attention_softcap or 0.0,
    )
    return attended, kv_out
