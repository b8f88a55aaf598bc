"""A row's result is a function of that row and its context, bit for bit, whatever shares its step."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.kernels.shape import AttentionShape
from tests.python.plugins.kernels.attention_steps import Step, random_step, same_bits
from tests.python.plugins.kernels.conftest import Run

LENGTHS = [(2, 30), (7, 520), (9, 9)]
SHAPES = [
    AttentionShape(num_heads=8, num_kv_heads=1, head_dim=64, block_size=32, scale=0.125, rotary_dim=64),
    AttentionShape(
        num_heads=6,
        num_kv_heads=2,
        head_dim=80,
        block_size=64,
        scale=0.1,
        window=100,
        softcap=5.0,
        compute_dtype="bfloat16",
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"window{s.window}")
def test_a_row_has_the_same_bits_alone_in_chunks_and_in_a_batch(run: Run, shape: AttentionShape) -> None:
    step = random_step(shape, LENGTHS)
    output, kv_cache = run(step)
    for seq, (rows, _) in enumerate(LENGTHS):
        chunk = (rows, 3, 4)[seq]
        pieces, cache = [], step.arrays["kv_cache"]
        for begin in range(0, rows, chunk):
            piece = step.rows(seq, begin, min(begin + chunk, rows), cache)
            piece_output, cache = run(piece, piece.splits if seq == 1 else 1)
            pieces.append(piece_output)
        start = step.arrays["query_start"][seq]
        assert same_bits(np.concatenate(pieces), output[start : start + rows])
        for block in used_blocks(step, seq):
            assert same_bits(cache[block], kv_cache[block])


def used_blocks(step: Step, seq: int) -> np.ndarray:
    context = step.arrays["context_lens"][seq]
    return step.arrays["block_table"][seq, : -(-context // step.shape.block_size)]


def test_padding_rows_and_empty_sequences_change_nothing_and_are_not_written(run: Run) -> None:
    shape = SHAPES[0]
    step = random_step(shape, [(1, 5), (3, 20)])
    output, kv_cache = run(step)
    a = dict(step.arrays)
    for name in ("query", "key", "value", "position_ids"):
        a[name] = np.concatenate([a[name], a[name][:2]])
    a["query_start"] = np.append(a["query_start"], a["query_start"][-1])
    a["context_lens"] = np.append(a["context_lens"], np.int32(0))
    a["block_table"] = np.concatenate([a["block_table"], np.full_like(a["block_table"][:1], 2**30)])
    padded_output, padded_cache = run(Step(shape, a))
    assert same_bits(padded_output[:4], output)
    assert np.all(np.isnan(padded_output[4:]))
    assert same_bits(padded_cache, kv_cache)
