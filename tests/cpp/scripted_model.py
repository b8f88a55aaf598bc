"""The scripted backend's logits and a request run alone over them: what every executor must reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trtc import _core, _test_executor

MASK = (1 << 64) - 1


def logits_after(tokens: Sequence[int], vocab_size: int = 32) -> np.ndarray:
    """float32 [vocab] after ``tokens``; the formula stands in test_executor_scripted_backend.h."""
    prefix = 0xCBF29CE484222325
    for token in tokens:
        prefix = ((prefix ^ token) * 0x100000001B3) & MASK
    x = np.uint64(prefix) + np.arange(vocab_size, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return ((x >> np.uint64(40)).astype(np.float64) * 2.0**-21 - 4.0).astype(np.float32)


@dataclass
class Output:
    """One finished sequence."""

    tokens: list[int]
    finish_reason: _core.FinishReason
    log_probs: list[tuple[list[int], list[float], int]]


def run_alone(request: _core.Request, vocab_size: int = 32) -> list[Output]:
    """What the request's sequences must give, whatever else runs: sampled one by one from the whole prefix."""
    outputs = []
    for index in range(request.sampling_config.num_return_sequences):
        output = Output([], _core.FinishReason.NOT_FINISHED, [])
        while output.finish_reason == _core.FinishReason.NOT_FINISHED:
            logits = logits_after([*request.input_token_ids, *output.tokens], vocab_size)
            token, log_probs = _test_executor.sample(logits, request, output.tokens, index)
            output.tokens.append(token)
            if log_probs is not None:
                output.log_probs.append(plain(log_probs))
            output.finish_reason = _test_executor.finish_reason(request, output.tokens)
        outputs.append(output)
    return outputs


def plain(log_probs: _core.TokenLogProbs) -> tuple[list[int], list[float], int]:
    return log_probs.ids, log_probs.values, log_probs.chosen_rank


@dataclass
class Collected:
    """The responses of one request, put together."""

    tokens: dict[int, list[int]]
    finish_reasons: dict[int, _core.FinishReason]
    log_probs: dict[int, list[tuple[list[int], list[float], int]]]
    error: str | None = None
    final: bool = False


def collect(responses: Sequence[_core.Response]) -> dict[int, Collected]:
    """By request id. Checks that nothing follows an end."""
    by_id: dict[int, Collected] = {}
    for response in responses:
        collected = by_id.setdefault(response.request_id, Collected({}, {}, {}))
        result = response.result
        assert not collected.final
        collected.final = result.is_final
        if response.has_error:
            collected.error = response.error
            assert result.is_final
            continue
        index = result.sequence_index
        assert index not in collected.finish_reasons
        collected.tokens.setdefault(index, []).extend(result.output_token_ids)
        collected.log_probs.setdefault(index, []).extend(plain(entry) for entry in result.log_probs)
        assert result.is_sequence_final == (result.finish_reason != _core.FinishReason.NOT_FINISHED)
        if result.is_sequence_final:
            collected.finish_reasons[index] = result.finish_reason
    return by_id
