"""How many KV blocks the settings give."""

from __future__ import annotations

from typing import Any

import pytest

from trtc._core import KvCacheConfig
from trtc._test_executor import available_memory, capacity_blocks
from trtc.errors import ExecutorError


def blocks(available_bytes: int = 1 << 40, max_kv_blocks: int = 2**31 - 1, **config: Any) -> int:
    """Of a model of 100 tokens, 16 to a block of 1000 bytes, and a batch of 4."""
    return capacity_blocks(
        KvCacheConfig(**config),
        max_seq_len=100,
        tokens_per_block=16,
        bytes_per_block=1000,
        max_batch_size=4,
        available_bytes=available_bytes,
        max_kv_blocks=max_kv_blocks,
    )


def test_no_more_than_a_full_batch_needs() -> None:
    assert blocks() == 4 * 7


def test_the_least_limit_holds() -> None:
    assert blocks(max_tokens=161) == 11
    assert blocks(max_bytes=9999) == 9
    assert blocks(available_bytes=20_000) == 10
    assert blocks(available_bytes=20_000, free_memory_fraction=0.4) == 8
    assert blocks(max_kv_blocks=9) == 9
    assert blocks(available_bytes=20_000, max_tokens=144, max_bytes=8000) == 8


@pytest.mark.parametrize("huge", [2**63 - 1, 2**63 - 8, 2**40])
def test_a_huge_limit_limits_nothing(huge: int) -> None:
    assert blocks(max_tokens=huge, max_bytes=huge) == blocks()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 96}, r"max_tokens = 96 gives a KV cache of 6 blocks .* max_seq_len 100 needs 7 blocks"),
        ({"max_bytes": 6999}, r"max_bytes = 6999 gives a KV cache of 6 blocks"),
        ({"available_bytes": 13_000}, r"free_memory_fraction = 0.5\d* of 13000 available bytes gives"),
        ({"max_kv_blocks": 6}, "the engine's largest pool gives a KV cache of 6 blocks"),
        ({"max_tokens": 0}, "max_tokens is 0; expected 1 or more"),
        ({"max_bytes": -1}, "max_bytes is -1; expected 1 or more"),
        ({"free_memory_fraction": 0.0}, "free_memory_fraction is 0"),
        ({"free_memory_fraction": float("nan")}, "free_memory_fraction is nan"),
    ],
)
def test_too_little_or_senseless_is_refused_with_the_numbers(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ExecutorError, match=message):
        blocks(**settings)


def test_available_memory_is_within_the_machine() -> None:
    assert 1 << 20 < available_memory() < 1 << 50
