"""Rotary embedding of queries and keys, and the write of keys and values into the paged cache."""

import triton
import triton.language as tl

from plugins.kernels.common import find_sequence

FP8_MAX = tl.constexpr(448.0)  # float8_e4m3: beyond it, only NaN


@triton.jit
def load_rotated(
    rows, valid, position_id, cos, sin, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, ROTARY_DIM: tl.constexpr
):
    """Heads of one token with rotary embedding (half-split pairs), rounded to their type.

    rows: pointers [heads] to HEAD_DIM channels; valid: bool [heads]; cos, sin float32 [positions, ROTARY_DIM / 2].
    Returns [heads, HEAD_PAD], 0 where invalid or padding.
    """
    channel = tl.arange(0, HEAD_PAD)[None, :]
    mask = valid[:, None] & (channel < HEAD_DIM)
    x = tl.load(rows[:, None] + channel, mask=mask, other=0.0)
    if ROTARY_DIM > 0:
        HALF: tl.constexpr = ROTARY_DIM // 2
        rotated = mask & (channel < ROTARY_DIM)
        partner = tl.where(channel < HALF, channel + HALF, channel - HALF)
        y = tl.load(rows[:, None] + partner, mask=rotated, other=0.0).to(tl.float32)
        angle = position_id.to(tl.int64) * HALF + tl.where(channel < HALF, channel, channel - HALF)
        c = tl.load(cos + angle, mask=channel < ROTARY_DIM, other=1.0)
        s = tl.load(sin + angle, mask=channel < ROTARY_DIM, other=0.0)
        turned = x.to(tl.float32) * c + y * tl.where(channel < HALF, -s, s)
        x = tl.where(rotated, turned.to(x.dtype), x)
    return x


@triton.jit
def as_stored(x, kv_cache):
    """x in the cache's type; float8 saturates."""
    dtype: tl.constexpr = kv_cache.dtype.element_ty
    if dtype == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -FP8_MAX), FP8_MAX)
    return x.to(dtype)


@triton.jit
def rotary_kv_write(
    query,
    key,
    value,
    kv_cache,
    position_ids,
    query_start,
    context_lens,
    block_table,
    cos,
    sin,
    rotated_query,
    seqs,
    max_blocks,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS_PER_PROGRAM: tl.constexpr,
    QUERY_PROGRAMS: tl.constexpr,
):
    """Grid (tokens, QUERY_PROGRAMS + ceil(NUM_KV_HEADS / HEADS_PER_PROGRAM)).

    QUERY_PROGRAMS is ceil(NUM_HEADS / HEADS_PER_PROGRAM), or 0 when ROTARY_DIM is 0: then query serves as
    rotated_query, and cos and sin are not read. Tokens from query_start[seqs] on are padding and not written.

    query, rotated_query T [tokens, NUM_HEADS * HEAD_DIM]; key, value T [tokens, NUM_KV_HEADS * HEAD_DIM]; kv_cache C
    [blocks, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM]; position_ids int32 [tokens]; query_start int32 [seqs + 1];
    context_lens int32 [seqs]; block_table int32 [seqs, max_blocks]; cos, sin float32 [positions, ROTARY_DIM / 2].
    """
    token = tl.program_id(0)
    if token >= tl.load(query_start + seqs):
        return
    position_id = tl.load(position_ids + token)
    program = tl.program_id(1)
    channel = tl.arange(0, HEAD_PAD)[None, :]
    if program < QUERY_PROGRAMS:
        head = program * HEADS_PER_PROGRAM + tl.arange(0, HEADS_PER_PROGRAM)
        row = (token.to(tl.int64) * NUM_HEADS + head) * HEAD_DIM
        mask = (head < NUM_HEADS)[:, None] & (channel < HEAD_DIM)
        q = load_rotated(query + row, head < NUM_HEADS, position_id, cos, sin, HEAD_DIM, HEAD_PAD, ROTARY_DIM)
        tl.store((rotated_query + row)[:, None] + channel, q, mask=mask)
    else:
        head = (program - QUERY_PROGRAMS) * HEADS_PER_PROGRAM + tl.arange(0, HEADS_PER_PROGRAM)
        row = (token.to(tl.int64) * NUM_KV_HEADS + head) * HEAD_DIM
        mask = (head < NUM_KV_HEADS)[:, None] & (channel < HEAD_DIM)
        k = load_rotated(key + row, head < NUM_KV_HEADS, position_id, cos, sin, HEAD_DIM, HEAD_PAD, ROTARY_DIM)
        v = tl.load((value + row)[:, None] + channel, mask=mask, other=0.0)

        seq = find_sequence(query_start, seqs, token, 1, 0)
        position = tl.load(context_lens + seq) - tl.load(query_start + seq + 1) + token
        block = tl.load(block_table + seq.to(tl.int64) * max_blocks + position // BLOCK_SIZE).to(tl.int64)
        part: tl.constexpr = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM
        slot = kv_cache + block * (2 * part) + (head * BLOCK_SIZE + position % BLOCK_SIZE) * HEAD_DIM
        tl.store(slot[:, None] + channel, as_stored(k, kv_cache), mask=mask)
        tl.store(slot[:, None] + part + channel, as_stored(v, kv_cache), mask=mask)
