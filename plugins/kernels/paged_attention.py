"""Attention of packed rows over the paged cache: FlashAttention's online softmax (arXiv 2205.14135), split context as
in Flash-Decoding. Query heads that share a KV head lie in one tile, so keys and values are read once for all of
them."""

import triton
import triton.language as tl

from plugins.kernels.common import find_sequence, merge

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def scaled_scores(raw, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    """Scores in units of log2(e), so that exp2 gives the weights."""
    if SOFTCAP > 0:
        # tanh(x) = 1 - 2 / (1 + exp(2 x)): right at both ends, exact to about 1e-7 between.
        e = tl.exp2(raw * (2 * SCALE / SOFTCAP * LOG2E))
        return (1.0 - 2.0 / (1.0 + e)) * (SOFTCAP * LOG2E)
    return raw * (SCALE * LOG2E)


@triton.jit
def paged_attention(
    rotated_query,
    kv_cache,
    query_start,
    context_lens,
    block_table,
    output,
    partial_output,
    partial_state,
    tokens,
    seqs,
    max_blocks,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PARTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Grid (tokens // BLOCK_TOKENS + seqs, NUM_KV_HEADS * VALUE_PARTS, splits), after rotary_kv_write.

    splits 1: a program walks its rows' whole context and writes ``output``. splits > 1, at least max_blocks *
    BLOCK_SIZE / SPLIT: a program walks one split and writes ``partial_output`` and ``partial_state``, for
    combine_splits. Tokens from query_start[seqs] on are padding and not written.

    rotated_query, output T [tokens, NUM_HEADS * HEAD_DIM]; kv_cache C [blocks, 2, NUM_KV_HEADS, BLOCK_SIZE,
    HEAD_DIM]; query_start int32 [seqs + 1]; context_lens int32 [seqs]; block_table int32 [seqs, max_blocks];
    partial_output float32 [splits, tokens, NUM_HEADS, HEAD_DIM]; partial_state float32 [splits, tokens, NUM_HEADS, 2]
    (sum, max). Each of VALUE_PARTS programs makes that part of the output's channels: wide heads need too many
    registers at once.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1) // VALUE_PARTS
    value_part = tl.program_id(1) % VALUE_PARTS
    seq = find_sequence(query_start, seqs, tile, BLOCK_TOKENS, 1)
    seq_begin = tl.load(query_start + seq)
    rows = tl.load(query_start + seq + 1) - seq_begin
    tile_row = (tile - seq_begin // BLOCK_TOKENS - seq) * BLOCK_TOKENS
    if tile_row >= rows:
        return
    tile_rows = tl.minimum(rows - tile_row, BLOCK_TOKENS)
    tile_position = tl.load(context_lens + seq) - rows + tile_row

    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    m = tl.arange(0, BLOCK_M)
    channel = tl.arange(0, HEAD_PAD)
    VALUE_PAD: tl.constexpr = HEAD_PAD // VALUE_PARTS
    value_channel = value_part * VALUE_PAD + tl.arange(0, VALUE_PAD)
    valid = m // GROUP < tile_rows
    position = tile_position + m // GROUP
    token = (seq_begin + tile_row + m // GROUP).to(tl.int64)
    head = token * NUM_HEADS + kv_head * GROUP + m % GROUP  # index into [tokens, NUM_HEADS]
    in_head = channel < HEAD_DIM
    q = tl.load(
        (rotated_query + head * HEAD_DIM)[:, None] + channel[None, :], mask=valid[:, None] & in_head[None, :], other=0.0
    )

    context_end = tile_position + tile_rows
    context_begin = 0
    if WINDOW > 0:
        context_begin = tl.maximum(tile_position - WINDOW + 1, 0)
    first_split = context_begin // SPLIT
    end_split = (context_end + SPLIT - 1) // SPLIT
    one_split = tl.num_programs(2) > 1
    if one_split:
        first_split = tl.maximum(first_split, tl.program_id(2))
        end_split = tl.minimum(end_split, tl.program_id(2) + 1)
        if first_split >= end_split:
            return

    table = block_table + seq.to(tl.int64) * max_blocks
    part: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM
    keys = kv_cache + kv_head * (BLOCK_SIZE * HEAD_DIM)
    total = tl.zeros([BLOCK_M, VALUE_PAD], tl.float32)
    total_sum = tl.zeros([BLOCK_M], tl.float32)
    total_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for split in range(first_split, end_split):
        begin = tl.maximum(split * SPLIT, context_begin // BLOCK_N * BLOCK_N)
        end = tl.minimum((split + 1) * SPLIT, context_end)
        acc = tl.zeros([BLOCK_M, VALUE_PAD], tl.float32)
        row_sum = tl.zeros([BLOCK_M], tl.float32)
        row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
        for tile_begin in range(begin, end, BLOCK_N):
            seen = tile_begin + tl.arange(0, BLOCK_N)
            stored = seen < end
            if BLOCK_SIZE >= BLOCK_N:  # the tile lies in one block
                block = tl.load(table + tile_begin // BLOCK_SIZE).to(tl.int64)
                slots = keys + block * (2 * part) + (tile_begin % BLOCK_SIZE) * HEAD_DIM
                slot = slots + tl.arange(0, BLOCK_N) * HEAD_DIM
            else:
                block = tl.load(table + seen // BLOCK_SIZE, mask=stored, other=0).to(tl.int64)
                slot = keys + block * (2 * part) + (seen % BLOCK_SIZE) * HEAD_DIM
            k = tl.load(slot[None, :] + channel[:, None], mask=stored[None, :] & in_head[:, None], other=0.0)
            raw = tl.dot(q, k.to(q.dtype))
            scores = scaled_scores(raw, SCALE, SOFTCAP)
            visible = seen[None, :] <= position[:, None]
            if WINDOW > 0:
                visible = visible & (position[:, None] - seen[None, :] < WINDOW)
            scores = tl.where(visible, scores, float("-inf"))

            new_max = tl.maximum(row_max, tl.max(scores, 1))
            base = tl.where(new_max == float("-inf"), 0.0, new_max)
            weights = tl.exp2(scores - base[:, None])
            shrink = tl.exp2(row_max - base)
            row_sum = row_sum * shrink + tl.sum(weights, 1)
            row_max = new_max
            # Slots without a token may hold NaN, which a weight of 0 would not hide.
            in_value = stored[:, None] & (value_channel < HEAD_DIM)[None, :]
            v = tl.load(slot[:, None] + part + value_channel[None, :], mask=in_value, other=0.0)
            acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc * shrink[:, None])
        total, total_sum, total_max = merge(total, total_sum, total_max, acc, row_sum, row_max)

    mask = valid[:, None] & (value_channel < HEAD_DIM)[None, :]
    # Read anew, so that the addresses of the rows are not kept in registers through the loops.
    seq_begin = tl.load(query_start + seq, volatile=True)
    row = (seq_begin + tile_row + m // GROUP).to(tl.int64) * NUM_HEADS + kv_head * GROUP + m % GROUP
    if one_split:
        row += tl.program_id(2).to(tl.int64) * tokens * NUM_HEADS
        tl.store(partial_output + (row * HEAD_DIM)[:, None] + value_channel[None, :], total, mask=mask)
        if value_part == 0:
            tl.store(partial_state + row * 2, total_sum, mask=valid)
            tl.store(partial_state + row * 2 + 1, total_max, mask=valid)
    else:
        result = (total / total_sum[:, None]).to(q.dtype)
        tl.store(output + (row * HEAD_DIM)[:, None] + value_channel[None, :], result, mask=mask)
