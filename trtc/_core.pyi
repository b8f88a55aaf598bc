"""Types of the extension module made from cpp/src/bindings/core*.cc."""

from collections.abc import Sequence
from enum import Enum
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

# Weights: quantizing and packing.

def quantize_groupwise(
    w: npt.NDArray[np.float32], bits: int, group: int, threads: int = 0
) -> tuple[Any, ...]: ...  # q int8, scales uint16; with 4 bits also zeros uint16
def packed_layout(format: str, n: int, k: int, group: int = 0) -> dict[str, Any]: ...
def pack_f32(w: npt.NDArray[np.float32], out: npt.NDArray[np.uint8], threads: int = 0) -> None: ...
def pack_bf16(w: npt.NDArray[np.uint16], out: npt.NDArray[np.uint8], threads: int = 0) -> None: ...
def pack_i8(
    q: npt.NDArray[np.int8],
    scales: npt.NDArray[np.uint16],
    group: int,
    out: npt.NDArray[np.uint8],
    threads: int = 0,
) -> None: ...
def pack_i4(
    q: npt.NDArray[np.int8],
    scales: npt.NDArray[np.uint16],
    zeros: npt.NDArray[np.uint16],
    group: int,
    out: npt.NDArray[np.uint8],
    threads: int = 0,
) -> None: ...

# The CPU backend, step by step.

def selected_isa() -> str: ...
def tensorrt_runtimes() -> list[str]: ...

class ModelInfo:
    engine_hash: str
    vocab_size: int
    num_layers: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_logit_rows: int
    tokens_per_block: int
    kv_bytes_per_block: int

class CpuModel:
    def __init__(self, engine_dir: str, num_threads: int = 0) -> None: ...
    @property
    def info(self) -> ModelInfo: ...
    def allocate_kv_cache(self, num_blocks: int) -> None: ...
    def run(
        self,
        input_ids: npt.NDArray[np.int32],
        position_ids: npt.NDArray[np.int32],
        query_start: npt.NDArray[np.int32],
        context_lens: npt.NDArray[np.int32],
        block_table: npt.NDArray[np.int32],
        logit_rows: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.float32]: ...
    def copy_block(self, source: int, destination: int) -> None: ...

# The executor. Field meanings: cpp/include/trtc/executor.h.

class FinishReason(Enum):
    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5

class CapacitySchedulerPolicy(Enum):
    GUARANTEED_NO_EVICT = 0

class SamplingConfig:
    num_return_sequences: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    min_tokens: int | None
    seed: int | None
    def __init__(
        self,
        *,
        num_return_sequences: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        min_tokens: int | None = None,
        seed: int | None = None,
    ) -> None: ...

class OutputConfig:
    log_probs: int | None
    prompt_log_probs: int | None
    return_context_logits: bool
    return_generation_logits: bool
    exclude_input_from_output: bool
    def __init__(
        self,
        *,
        log_probs: int | None = None,
        prompt_log_probs: int | None = None,
        return_context_logits: bool = False,
        return_generation_logits: bool = False,
        exclude_input_from_output: bool = True,
    ) -> None: ...

class Request:
    input_token_ids: list[int]
    max_tokens: int
    streaming: bool
    sampling_config: SamplingConfig
    output_config: OutputConfig
    end_id: int | None
    stop_token_ids: list[int]
    stop_words: list[list[int]]
    bad_words: list[list[int]]
    cache_salt: str | None
    def __init__(
        self,
        *,
        input_token_ids: Sequence[int],
        max_tokens: int = 16,
        streaming: bool = False,
        sampling_config: SamplingConfig = ...,
        output_config: OutputConfig = ...,
        end_id: int | None = None,
        stop_token_ids: Sequence[int] = (),
        stop_words: Sequence[Sequence[int]] = (),
        bad_words: Sequence[Sequence[int]] = (),
        cache_salt: str | None = None,
    ) -> None: ...

class TokenLogProbs:
    ids: list[int]
    values: list[float]
    chosen_rank: int

class Result:
    sequence_index: int
    is_sequence_final: bool
    is_final: bool
    output_token_ids: list[int]
    log_probs: list[TokenLogProbs]
    prompt_log_probs: list[TokenLogProbs]
    context_logits: npt.NDArray[np.float32] | None
    generation_logits: npt.NDArray[np.float32] | None
    cum_log_prob: float
    finish_reason: FinishReason
    reused_tokens: int

class Response:
    request_id: int
    error: str | None
    has_error: bool
    result: Result

class KvCacheConfig:
    enable_block_reuse: bool
    max_tokens: int | None
    max_bytes: int | None
    free_memory_fraction: float
    def __init__(
        self,
        *,
        enable_block_reuse: bool = True,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        free_memory_fraction: float = 0.5,
    ) -> None: ...

class SchedulerConfig:
    policy: CapacitySchedulerPolicy
    enable_chunked_prefill: bool
    max_batch_size: int | None
    max_num_tokens: int | None
    def __init__(
        self,
        *,
        policy: CapacitySchedulerPolicy = ...,
        enable_chunked_prefill: bool = True,
        max_batch_size: int | None = None,
        max_num_tokens: int | None = None,
    ) -> None: ...

class ExecutorConfig:
    scheduler_config: SchedulerConfig
    kv_cache_config: KvCacheConfig
    num_threads: int
    iter_stats_max_iterations: int
    max_queue_size: int
    def __init__(
        self,
        *,
        scheduler_config: SchedulerConfig = ...,
        kv_cache_config: KvCacheConfig = ...,
        num_threads: int = 0,
        iter_stats_max_iterations: int = 1000,
        max_queue_size: int = 16384,
    ) -> None: ...

class KvCacheStats:
    max_num_blocks: int
    free_num_blocks: int
    used_num_blocks: int
    cached_num_blocks: int
    tokens_per_block: int
    reused_blocks: int
    missed_blocks: int

class IterationStats:
    iter: int
    iter_latency_ms: float
    num_active_requests: int
    num_queued_requests: int
    num_completed_requests: int
    num_context_tokens: int
    num_generation_tokens: int
    kv_cache_stats: KvCacheStats

class Executor:
    def __init__(self, engine_path: str, config: ExecutorConfig = ...) -> None: ...
    def enqueue_request(self, request: Request) -> int: ...
    def enqueue_requests(self, requests: Sequence[Request]) -> list[int]: ...
    def await_responses(self, timeout_ms: int | None = None, request_id: int | None = None) -> list[Response]: ...
    def get_num_responses_ready(self, request_id: int | None = None) -> int: ...
    def cancel_request(self, request_id: int) -> None: ...
    def get_latest_iteration_stats(self) -> list[IterationStats]: ...
    def get_kv_cache_stats(self) -> KvCacheStats: ...
    def shutdown(self) -> None: ...
    def __enter__(self) -> Executor: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
