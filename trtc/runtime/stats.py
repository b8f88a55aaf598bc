"""Executor statistics as plain values. Names follow TensorRT-LLM's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtc import _core


def iteration_stats(stats: _core.IterationStats) -> dict[str, Any]:
    """One executor iteration. Latency in milliseconds, the rest are counts."""
    return {
        "iter": stats.iter,
        "iterLatencyMS": stats.iter_latency_ms,
        "numActiveRequests": stats.num_active_requests,
        "numQueuedRequests": stats.num_queued_requests,
        "numCompletedRequests": stats.num_completed_requests,
        "inflightBatchingStats": {
            "numCtxTokens": stats.num_context_tokens,
            "numGenTokens": stats.num_generation_tokens,
        },
        "kvCacheStats": kv_cache_stats(stats.kv_cache_stats),
    }


def kv_cache_stats(stats: _core.KvCacheStats) -> dict[str, Any]:
    """Blocks: maxNumBlocks = free + used + cached. reusedBlocks and missedBlocks count since the start."""
    return {
        "maxNumBlocks": stats.max_num_blocks,
        "freeNumBlocks": stats.free_num_blocks,
        "usedNumBlocks": stats.used_num_blocks,
        "cachedNumBlocks": stats.cached_num_blocks,
        "tokensPerBlock": stats.tokens_per_block,
        "reusedBlocks": stats.reused_blocks,
        "missedBlocks": stats.missed_blocks,
    }
