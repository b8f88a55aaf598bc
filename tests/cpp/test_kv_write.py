"""Writing keys and values into the paged cache."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cpp.guarded import ISAS, GuardedRows
from trtc import _test_kernels as k

QUERY_START = np.array([0, 1, 6, 6, 26], np.int32)
CONTEXT_LENS = np.array([17, 5, 3, 40], np.int32)
BLOCK_TABLE = np.array([[7, 1, 0], [2, 0, 0], [3, 0, 0], [6, 4, 5]], np.int32)
BLOCK_SIZE = 16

pytestmark = pytest.mark.parametrize("isa", ISAS)


def written_pool(pool: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """What the pool must hold afterwards; key and value [tokens, kv_heads, head_dim] in the pool's dtype."""
    pool = pool.copy()
    for seq, context in enumerate(CONTEXT_LENS):
        start, stop = QUERY_START[seq : seq + 2]
        for token in range(start, stop):
            position = context - stop + token
            block = BLOCK_TABLE[seq, position // BLOCK_SIZE]
            pool[block, 0, :, position % BLOCK_SIZE] = key[token]
            pool[block, 1, :, position % BLOCK_SIZE] = value[token]
    return pool


@pytest.mark.parametrize("head_dim", [8, 64, 80, 1, 5, 33])
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_only_the_steps_slots_are_written(isa: str, head_dim: int, bf16: bool, threads: int) -> None:
    rng = np.random.default_rng(head_dim)
    key, value = rng.normal(size=(2, 26, 3 * head_dim)).astype(np.float32)
    dtype = ml_dtypes.bfloat16 if bf16 else np.float32
    pool = rng.normal(size=(8, 2, 3, BLOCK_SIZE, head_dim)).astype(dtype)
    expected = written_pool(pool, *(part.reshape(26, 3, head_dim).astype(dtype) for part in (key, value)))
    raw = pool.view(np.uint16) if bf16 else pool
    k.kv_write(
        isa,
        GuardedRows(key).rows,
        GuardedRows(value, gap=9).rows,
        raw,
        QUERY_START,
        CONTEXT_LENS,
        BLOCK_TABLE,
        threads=threads,
    )
    assert pool.tobytes() == expected.tobytes()


def test_bf16_rounds_to_nearest_even_and_keeps_nan(isa: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 33 * 26, dtype=np.uint32)
    bits[:600:2] = (bits[:600:2] & 0xFFFF0000) | 0x8000  # ties
    bits[1:5] = [0x7F7FFFFF, 0x7F800000, 0xFF800001, 0x7FC00000]  # rounds up to infinity, infinity, NaNs
    key = bits.view(np.float32).reshape(26, 33)
    pool = np.zeros((8, 2, 1, BLOCK_SIZE, 33), np.uint16)
    k.kv_write(isa, key, key, pool, QUERY_START, CONTEXT_LENS, BLOCK_TABLE)
    with np.errstate(invalid="ignore"):
        rounded = key.astype(ml_dtypes.bfloat16)[:, None]
    expected = written_pool(np.zeros_like(pool).view(ml_dtypes.bfloat16), rounded, rounded).astype(np.float32)
    np.testing.assert_array_equal(pool.view(ml_dtypes.bfloat16).astype(np.float32), expected)
