"""The two ends of a model: token and position embeddings, and logits of the wanted rows."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.blocks.linear import all_reduce, columns
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder
from trtc.graph.shard import vocabulary_rows
from trtc.graph.weight_slices import take_rows


def token_embedding(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, name: str) -> tuple[ir.Value, ir.Value]:
    """(the table float [vocab, hidden], the rows' embeddings float [tokens, hidden]), scaled as the model wants.

    A rank's table holds its rows of the vocabulary alone.
    """
    table = _vocabulary_matrix(g, cfg, w, name)
    if g.shard.whole:
        x = g.op("Gather", table, g.input_ids, axis=0, name="embed_tokens")
    else:
        first = vocabulary_rows(cfg.vocab_size, g.shard).start
        own = g.op("GatherShard", table, g.input_ids, domain=ops.DOMAIN, first_row=first, name="embed_tokens")
        x = all_reduce(g, own, "embed_tokens.sum")
    if cfg.embedding_scale != 1.0:
        x = g.op("Mul", x, g.scalar(cfg.embedding_scale), name="embed_scale")
    return table, x


def add_position_embedding(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, x: ir.Value, name: str) -> ir.Value:
    """x float [tokens, hidden] plus the learned embedding of each row's position."""
    table = g.weight(w.take(name, (cfg.max_position_embeddings, cfg.hidden_size)))
    return g.op("Add", x, g.op("Gather", table, g.position_ids, axis=0, name="embed_positions"), name="embed")


def logits_of_wanted_rows(
    g: GraphBuilder,
    cfg: ModelConfig,
    w: WeightMap,
    x: ir.Value,
    norm: Callable[[ir.Value], ir.Value],
    token_table: ir.Value,
) -> ir.Value:
    """x float [tokens, hidden] -> float [logit_rows, vocab]; only the wanted rows are normalized and projected.

    With tied embeddings the projection is ``token_table`` itself; a redundant ``lm_head.weight`` is passed over.
    """
    head = token_table
    if cfg.tie_word_embeddings:
        w.ignore(r"lm_head\.weight")
    else:
        head = _vocabulary_matrix(g, cfg, w, "lm_head.weight")
    wanted = norm(g.op("Gather", x, g.logit_rows, axis=0, name="wanted_rows"))
    logits = _all_logits(g, cfg, g.op("Gemm", wanted, head, transB=1, name="lm_head"))
    if cfg.logit_softcap is None:
        return logits
    with g.scope("logit_softcap"):
        bounded = g.op("Tanh", g.op("Mul", logits, g.scalar(1 / cfg.logit_softcap), name="shrink"), name="tanh")
        return g.op("Mul", bounded, g.scalar(cfg.logit_softcap), name="stretch")


def _vocabulary_matrix(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, name: str) -> ir.Value:
    """This rank's rows of a [vocab, hidden] matrix."""
    weight = w.take(name, (cfg.vocab_size, cfg.hidden_size))
    return g.weight(take_rows(weight, [vocabulary_rows(cfg.vocab_size, g.shard)]))


def _all_logits(g: GraphBuilder, cfg: ModelConfig, own: ir.Value) -> ir.Value:
    """This rank's logits -> every rank's float [logit_rows, vocab], without the padding of the last ranks."""
    if g.shard.whole:
        return own
    gathered = g.op("AllGather", own, domain=ops.DOMAIN, world=g.shard.world, name="lm_head.all")
    padding = columns(gathered) - cfg.vocab_size
    if padding == 0:
        return gathered
    logits, _ = g.emit("Split", gathered, g.ints(cfg.vocab_size, padding), axis=1, name="lm_head.wanted")
    return logits
