"""What the kernels share: finding a row's sequence, merging softmax states."""

import triton
import triton.language as tl

SEQS_PER_LOAD = tl.constexpr(128)


@triton.jit
def find_sequence(query_start, seqs, index, TOKENS_PER_TILE: tl.constexpr, TILES_PER_SEQ: tl.constexpr):
    """The sequence of tile ``index``, where sequence s begins at tile query_start[s] // TOKENS_PER_TILE + s *
    TILES_PER_SEQ.

    query_start int32 [seqs + 1]. With (1, 0) the tiles are tokens. With (n, 1) every sequence gets the tiles of n
    tokens that it needs, at most one more, and query_start[seqs] // n + seqs tiles suffice for all: a grid known
    without the lengths. Counting needs no dependent loads, which a binary search would.
    """
    count = 0
    for base in range(0, seqs, SEQS_PER_LOAD):
        seq = base + tl.arange(0, SEQS_PER_LOAD)
        first = tl.load(query_start + seq, mask=seq < seqs, other=0) // TOKENS_PER_TILE + seq * TILES_PER_SEQ
        count += tl.sum(((first <= index) & (seq < seqs)).to(tl.int32))
    return count - 1


@triton.jit
def merge(total, total_sum, total_max, part, part_sum, part_max):
    """Softmax states over ``total``'s positions and the later ones of ``part``, as one.

    A state is the sum of exp2(score - max) * value [rows, channels], of exp2(score - max) [rows], and max [rows],
    which is -inf where the row sees no position; merging such a part changes nothing. Adding 0.0 turns -0.0 into 0.0,
    so that the sign of a zero does not tell how often a state was merged.
    """
    new_max = tl.maximum(total_max, part_max)
    base = tl.where(new_max == float("-inf"), 0.0, new_max)
    a = tl.exp2(total_max - base)
    b = tl.exp2(part_max - base)
    return total * a[:, None] + (part * b[:, None] + 0.0), total_sum * a + part_sum * b, new_max
