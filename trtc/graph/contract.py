"""THE names, shapes and dtypes of a step's bindings. Nothing else in the project spells them out.

A step runs packed tokens, never padding: prefill chunks and decode rows share it. Symbolic dimensions:
``tokens`` (rows of this step), ``seqs`` (sequences in it), ``max_blocks`` (block-table columns), ``logit_rows``
(rows whose logits are wanted), ``blocks`` (KV pool size).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dim = int | str

TOKENS: Dim = "tokens"
SEQS: Dim = "seqs"
SEQS_PLUS_ONE: Dim = "seqs + 1"
MAX_BLOCKS: Dim = "max_blocks"
LOGIT_ROWS: Dim = "logit_rows"
BLOCKS: Dim = "blocks"


@dataclass(frozen=True)
class Binding:
    """One input or output of the step graph."""

    name: str
    dtype: Literal["int32", "float32", "kv"]  # "kv" is the KV cache's storage type
    shape: tuple[Dim, ...]
    meaning: str


INPUT_IDS = Binding("input_ids", "int32", (TOKENS,), "token id of each row")
POSITION_IDS = Binding("position_ids", "int32", (TOKENS,), "position of each row in its sequence")
QUERY_START = Binding("query_start", "int32", (SEQS_PLUS_ONE,), "cumulative query lengths; row 0 is 0")
CONTEXT_LENS = Binding("context_lens", "int32", (SEQS,), "tokens in the KV cache after this step")
BLOCK_TABLE = Binding("block_table", "int32", (SEQS, MAX_BLOCKS), "physical block of each logical block")
LOGIT_ROW_IDS = Binding("logit_rows", "int32", (LOGIT_ROWS,), "rows whose logits are wanted, ascending")

STEP_INPUTS: tuple[Binding, ...] = (
    INPUT_IDS,
    POSITION_IDS,
    QUERY_START,
    CONTEXT_LENS,
    BLOCK_TABLE,
    LOGIT_ROW_IDS,
)


def logits(vocab_size: int) -> Binding:
    """The step's only output besides the KV caches."""
    return Binding("logits", "float32", (LOGIT_ROWS, vocab_size), "logits of the wanted rows")


def kv_cache(layer: int, kv_heads: int, head_dim: int, block_size: int) -> Binding:
    """A layer's KV pool: [blocks, 2 (key, value), kv_heads, block_size, head_dim], updated in place."""
    return Binding(f"kv_cache.{layer}", "kv", (BLOCKS, 2, kv_heads, block_size, head_dim), "state, updated in place")


def kv_cache_out(layer: int) -> str:
    """Name of the graph output that aliases ``kv_cache.<layer>`` after the step's write."""
    return f"kv_cache.{layer}.out"
