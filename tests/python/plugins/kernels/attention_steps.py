"""Random ragged steps of one attention layer with unrotated rows, and the graph's reference of them with an error
bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from plugins.kernels.shape import SPLIT, AttentionShape, stored_dtype
from trtc.graph.ops import DOMAIN
from trtc.graph.reference import KERNELS

NUMPY_TYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}
EPS32 = 2.0**-24  # unit roundoffs
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float16": 2.0**-25, "bfloat16": 0.0}  # half of the smallest subnormal; bfloat16 reaches as low as float32


@dataclass(frozen=True)
class Step:
    """The plugin's inputs by name. Cache slots that hold no token are NaN."""

    shape: AttentionShape
    arrays: dict[str, np.ndarray]

    @property
    def splits(self) -> int:
        return -(-self.arrays["block_table"].shape[1] * self.shape.block_size // SPLIT)

    def rows(self, seq: int, begin: int, end: int, kv_cache: np.ndarray | None = None) -> Step:
        """The step that runs only rows [begin, end) of a sequence, the later ones not yet in its context."""
        a = self.arrays
        start, stop = a["query_start"][seq : seq + 2]
        chosen = {name: a[name][start + begin : start + end] for name in ("query", "key", "value", "position_ids")}
        chosen["query_start"] = np.array([0, end - begin], np.int32)
        chosen["context_lens"] = a["context_lens"][seq : seq + 1] - np.int32(stop - start - end)
        chosen["block_table"] = a["block_table"][seq : seq + 1]
        chosen["kv_cache"] = a["kv_cache"] if kv_cache is None else kv_cache
        return replace(self, arrays={**a, **chosen})


def random_step(shape: AttentionShape, lengths: list[tuple[int, int]], seed: int = 0) -> Step:
    """A step over sequences of (query rows, context length); blocks are dealt out in random order."""
    rng = np.random.default_rng(seed)
    compute, cache = NUMPY_TYPES[shape.compute_dtype], NUMPY_TYPES[stored_dtype(shape)]
    needed = [-(-context // shape.block_size) for _, context in lengths]
    blocks = sum(needed) + 3
    pool = rng.normal(0, 1, (blocks, 2, shape.num_kv_heads, shape.block_size, shape.head_dim)).astype(cache)
    order = rng.permutation(blocks).astype(np.int32)
    table = np.full((len(lengths), max(needed) + 1), 2**30, np.int32)  # no such block: never to be used
    empty = np.ones((blocks, shape.block_size), bool)
    for seq, (rows, context) in enumerate(lengths):
        table[seq, : needed[seq]], order = order[: needed[seq]], order[needed[seq] :]
        old = np.arange(context - rows)
        empty[table[seq, old // shape.block_size], old % shape.block_size] = False
    pool.transpose(0, 3, 1, 2, 4)[empty] = np.nan
    tokens = sum(rows for rows, _ in lengths)
    angles = np.outer(np.arange(max(c for _, c in lengths) + 2), 10000.0 ** -np.linspace(0, 1, shape.rotary_dim // 2))
    arrays = {
        "query": rng.normal(0, 1, (tokens, shape.num_heads * shape.head_dim)).astype(compute),
        "key": rng.normal(0, 1, (tokens, shape.num_kv_heads * shape.head_dim)).astype(compute),
        "value": rng.normal(0, 1, (tokens, shape.num_kv_heads * shape.head_dim)).astype(compute),
        "kv_cache": pool,
        # Positions need not be places in the context: shift them.
        "position_ids": np.concatenate([np.arange(c - r, c) + 1 for r, c in lengths]).astype(np.int32),
        "query_start": np.cumsum([0] + [rows for rows, _ in lengths]).astype(np.int32),
        "context_lens": np.array([context for _, context in lengths], np.int32),
        "block_table": table,
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }
    return Step(shape, arrays)


def reference(step: Step) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output float32, its error bound, and the cache after the step, which must be met exactly."""
    s, a = step.shape, step.arrays
    compute = NUMPY_TYPES[s.compute_dtype]

    def rotated(name: str, heads: int) -> np.ndarray:
        x = a[name].astype(np.float32)
        if s.rotary_dim:
            rotary = KERNELS[DOMAIN, "RotaryEmbedding"]
            (x,) = rotary(x, a["cos"], a["sin"], a["position_ids"], num_heads=heads, rotary_dim=s.rotary_dim)
        return x.astype(compute)

    query, key = rotated("query", s.num_heads), rotated("key", s.num_kv_heads)

    def attention(value: np.ndarray, kv_cache: np.ndarray) -> tuple[np.ndarray, ...]:
        attributes = {
            "num_heads": s.num_heads,
            "num_kv_heads": s.num_kv_heads,
            "head_dim": s.head_dim,
            "scale": s.scale,
            "window": s.window,
            "softcap": s.softcap,
            "layer": 0,
        }
        lists = (a["query_start"], a["context_lens"], a["block_table"])
        return KERNELS[DOMAIN, "PagedAttention"](query.astype(np.float32), key, value, kv_cache, *lists, **attributes)

    output, kv_cache = attention(a["value"], a["kv_cache"])
    magnitude, _ = attention(abs(a["value"]), abs(a["kv_cache"]))  # sum of weight * |value|
    return output, error_bound(step, query, kv_cache, magnitude), kv_cache


def error_bound(step: Step, query: np.ndarray, kv_cache: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """Of kernel and reference together, each element."""
    s = step.shape
    context = int(step.arrays["context_lens"].max())
    longest_query = np.linalg.norm(query.astype(np.float32).reshape(-1, s.head_dim), axis=1).max()
    keys = np.nan_to_num(kv_cache[:, 0].astype(np.float32))
    largest = longest_query * np.linalg.norm(keys, axis=-1).max() * s.scale  # bounds every score and its terms' sum
    score_error = EPS32 * (s.head_dim + 8) * largest + 16 * EPS32 * s.softcap
    # float32: scores in a weight and in the maximum, exponentials, the sums of weights and of values, rescaling by
    # tile.
    relative = 2 * (4 * score_error + EPS32 * (4 * largest + 16 + 4 * context))
    rounding = ROUNDOFF[s.compute_dtype]  # of each weight, and of the result
    smallest = SMALLEST[s.compute_dtype]
    largest_value = np.nan_to_num(kv_cache[:, 1].astype(np.float32)).max()
    return (2 * rounding * (1 + rounding) + relative) * magnitude + smallest * (1 + context * largest_value)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))
