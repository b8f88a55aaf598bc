"""The two ends of a model: token and position embeddings, and logits of the wanted rows."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def token_embedding(g: GraphBuilder, cfg: ModelConfig, w: WeightMap, name: str) -> tuple[ir.Value, ir.Value]:
    """(the table float [vocab, hidden], the rows' embeddings float [tokens, hidden]), scaled as the model wants."""
    table = g.weight(w.take(name, (cfg.vocab_size, cfg.hidden_size)))
    x = g.op("Gather", table, g.input_ids, axis=0, name="embed_tokens")
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
        head = g.weight(w.take("lm_head.weight", (cfg.vocab_size, cfg.hidden_size)))
    wanted = norm(g.op("Gather", x, g.logit_rows, axis=0, name="wanted_rows"))
    logits = g.op("Gemm", wanted, head, transB=1, name="lm_head")
    if cfg.logit_softcap is None:
        return logits
    with g.scope("logit_softcap"):
        bounded = g.op("Tanh", g.op("Mul", logits, g.scalar(1 / cfg.logit_softcap), name="shrink"), name="tanh")
        return g.op("Mul", bounded, g.scalar(cfg.logit_softcap), name="stretch")
