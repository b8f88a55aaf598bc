"""Joins the splits of a context in order."""

import triton
import triton.language as tl

from plugins.kernels.common import find_sequence, merge


@triton.jit
def combine_splits(
    partial_output,
    partial_state,
    query_start,
    context_lens,
    output,
    tokens,
    seqs,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    HEADS_PER_PROGRAM: tl.constexpr,
):
    """Grid (tokens, ceil(NUM_HEADS / HEADS_PER_PROGRAM)), after a paged_attention of more than one split.

    partial_output float32 [splits, tokens, NUM_HEADS, HEAD_DIM]; partial_state float32 [splits, tokens, NUM_HEADS, 2]
    (sum, max); query_start int32 [seqs + 1]; context_lens int32 [seqs]; output T [tokens, NUM_HEADS * HEAD_DIM].
    """
    token = tl.program_id(0)
    if token >= tl.load(query_start + seqs):
        return
    seq = find_sequence(query_start, seqs, token, 1, 0)
    position = tl.load(context_lens + seq) - tl.load(query_start + seq + 1) + token
    first_split = 0
    if WINDOW > 0:
        first_split = tl.maximum(position - WINDOW + 1, 0) // SPLIT

    head = tl.program_id(1) * HEADS_PER_PROGRAM + tl.arange(0, HEADS_PER_PROGRAM)
    channel = tl.arange(0, HEAD_PAD)
    valid = head < NUM_HEADS
    mask = valid[:, None] & (channel < HEAD_DIM)[None, :]
    total = tl.zeros([HEADS_PER_PROGRAM, HEAD_PAD], tl.float32)
    total_sum = tl.zeros([HEADS_PER_PROGRAM], tl.float32)
    total_max = tl.full([HEADS_PER_PROGRAM], float("-inf"), tl.float32)
    for split in range(first_split, position // SPLIT + 1):
        row = (token + split * tokens).to(tl.int64) * NUM_HEADS + head
        part = tl.load(partial_output + row[:, None] * HEAD_DIM + channel[None, :], mask=mask, other=0.0)
        part_sum = tl.load(partial_state + row * 2, mask=valid, other=0.0)
        part_max = tl.load(partial_state + row * 2 + 1, mask=valid, other=float("-inf"))
        total, total_sum, total_max = merge(total, total_sum, total_max, part, part_sum, part_max)
    row = token.to(tl.int64) * NUM_HEADS + head
    result = (total / total_sum[:, None]).to(output.dtype.element_ty)
    tl.store(output + row[:, None] * HEAD_DIM + channel[None, :], result, mask=mask)
