"""Random ragged steps over a paged KV cache, and attention over them in float64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.cpp.guarded import EPS
from trtc import _test_kernels as k


@dataclass(frozen=True)
class Shape:
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 16
    bf16: bool = False
    window: int = 0
    softcap: float = 0.0
    scale: float = 0.25


@dataclass
class Step:
    """The inputs of one paged_attention call. Every cache slot that holds no token is NaN."""

    shape: Shape
    query: np.ndarray  # [tokens, heads * head_dim]
    pool: np.ndarray  # [blocks, 2, kv_heads, block_size, head_dim]; bfloat16 as uint16
    query_start: np.ndarray
    context_lens: np.ndarray
    block_table: np.ndarray

    def keys_and_values(self, seq: int) -> np.ndarray:
        """float64 [2, kv_heads, context, head_dim] of a sequence."""
        blocks = self.pool[self.block_table[seq]]
        if self.shape.bf16:
            blocks = blocks.view(ml_dtypes.bfloat16)
        joined = np.moveaxis(blocks.astype(np.float64), 0, 2)  # [2, kv_heads, max_blocks, block_size, head_dim]
        flat = joined.reshape(2, self.shape.kv_heads, -1, self.shape.head_dim)
        return flat[:, :, : self.context_lens[seq]]

    def run(self, isa: str, threads: int = 1, y: np.ndarray | None = None) -> np.ndarray:
        y = np.full_like(self.query, np.nan) if y is None else y
        k.paged_attention(
            isa,
            self.query,
            self.pool,
            self.query_start,
            self.context_lens,
            self.block_table,
            y,
            scale=self.shape.scale,
            window=self.shape.window,
            softcap=self.shape.softcap,
            threads=threads,
        )
        return y

    def rows(self, seq: int, begin: int, end: int) -> Step:
        """The step that runs only rows [begin, end) of a sequence, the later ones not yet in its context."""
        start, stop = self.query_start[seq : seq + 2]
        return Step(
            self.shape,
            self.query[start + begin : start + end],
            self.pool,
            np.array([0, end - begin], np.int32),
            np.array([self.context_lens[seq] - (stop - start) + end], np.int32),
            self.block_table[seq : seq + 1].copy(),
        )


def random_step(shape: Shape, lengths: list[tuple[int, int]], seed: int = 0, amplitude: float = 1.0) -> Step:
    """A step over sequences of (query rows, context length); blocks are dealt out in random order."""
    rng = np.random.default_rng(seed)
    needed = [-(-context // shape.block_size) for _, context in lengths]
    blocks = sum(needed) + 3
    pool = rng.normal(0, amplitude, (blocks, 2, shape.kv_heads, shape.block_size, shape.head_dim)).astype(np.float32)
    order = rng.permutation(blocks).astype(np.int32)
    table = np.zeros((len(lengths), max(needed) + 1), np.int32)
    free = np.ones((blocks, shape.block_size), bool)
    for seq, (_, context) in enumerate(lengths):
        table[seq, : needed[seq]], order = order[: needed[seq]], order[needed[seq] :]
        table[seq, needed[seq] :] = order[-1]
        for position in range(context):
            free[table[seq, position // shape.block_size], position % shape.block_size] = False
    pool.transpose(0, 3, 1, 2, 4)[free] = np.nan
    if shape.bf16:
        pool = pool.astype(ml_dtypes.bfloat16).view(np.uint16)
    tokens = sum(rows for rows, _ in lengths)
    query = rng.normal(0, amplitude, (tokens, shape.heads * shape.head_dim)).astype(np.float32)
    start = np.cumsum([0] + [rows for rows, _ in lengths]).astype(np.int32)
    return Step(shape, query, pool, start, np.array([context for _, context in lengths], np.int32), table)


def attention_reference(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Value and error bound, both float64, shaped as the query."""
    s = step.shape
    y, bound = np.empty(step.query.shape), np.empty(step.query.shape)
    for seq in range(len(step.context_lens)):
        keys, values = step.keys_and_values(seq)
        start, stop = step.query_start[seq : seq + 2]
        for token in range(start, stop):
            end = step.context_lens[seq] - stop + token + 1
            begin = max(0, end - s.window) if s.window else 0
            for head in range(s.heads):
                kv_head = head // (s.heads // s.kv_heads)
                columns = slice(head * s.head_dim, (head + 1) * s.head_dim)
                y[token, columns], bound[token, columns] = _attend(
                    s,
                    step.query[token, columns].astype(np.float64),
                    keys[kv_head, begin:end],
                    values[kv_head, begin:end],
                )
    return y, bound


def _attend(s: Shape, query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores = keys @ query * s.scale
    # A dot product of head_dim terms, the scale; then the soft cap, whose slope is at most 1.
    score_error = EPS * (s.head_dim + 2) * np.max(np.abs(keys) @ np.abs(query)) * abs(s.scale)
    if s.softcap:
        scores = s.softcap * np.tanh(scores / s.softcap)
        score_error += 8 * EPS * s.softcap
    largest = np.max(np.abs(scores))
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    # Each weight: score errors of itself and of the maximum, their difference rounded, exp, one rescale per tile; the
    # same once more in the sum; then sums over the context and the division.
    count = len(scores)
    tiles = count // s.block_size + 2
    relative = 4 * score_error + EPS * (4 * largest + 8 + 8 * tiles + 2 * count)
    return weights @ values, relative * (weights @ np.abs(values))
