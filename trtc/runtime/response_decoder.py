"""Executor responses of one request, made into increments: token ids to text, and an end at stop strings.

Tokens are taken one at a time, so the outputs do not depend on how the executor grouped them or when it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtc.errors import ExecutorError
from trtc.runtime.detokenizer import IncrementalDetokenizer, StopStrings
from trtc.runtime.outputs import FinishReason, Increment, Logprob

if TYPE_CHECKING:
    from trtc import _core
    from trtc.runtime.sampling_params import SamplingParams
    from trtc.runtime.tokenizer import Tokenizer

# The executor's names for what the LLM API calls a finish reason.
_FINISH_REASONS: dict[str, FinishReason | None] = {
    "NOT_FINISHED": None,
    "END_ID": "stop",
    "STOP_WORDS": "stop",
    "LENGTH": "length",
    "TIMED_OUT": "timeout",
    "CANCELLED": "cancelled",
}


class ResponseDecoder:
    """State of one request on the receiving side; used by the dispatcher thread alone."""

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer | None) -> None:
        self._sequences = [_Sequence(params, tokenizer if params.detokenize else None) for _ in range(params.n)]

    @property
    def finished(self) -> bool:
        """Every sequence has ended; the executor may still be at work on tokens past a stop string."""
        return all(sequence.finished for sequence in self._sequences)

    def decode(self, response: _core.Response) -> Increment | None:
        """The increment this response brings; None when its sequence had ended before."""
        if response.error is not None:
            return self.fail(ExecutorError(response.error))
        result = response.result
        sequence = self._sequences[result.sequence_index]
        if sequence.finished:
            return None
        text, count = sequence.push(result.output_token_ids)
        if result.is_sequence_final and not sequence.finished:
            text += sequence.finish(_FINISH_REASONS[result.finish_reason.name])
        return Increment(
            sequence_index=result.sequence_index,
            text=text,
            token_ids=result.output_token_ids[:count],
            logprobs=[_logprobs(entry) for entry in result.log_probs[:count]],
            prompt_logprobs=[_logprobs(entry) for entry in result.prompt_log_probs],
            cumulative_logprob=sequence.add_logprobs(result.log_probs[:count]),
            context_logits=result.context_logits,
            generation_logits=None if result.generation_logits is None else result.generation_logits[:count],
            finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason,
            is_final=self.finished,
        )

    def fail(self, error: Exception) -> Increment:
        for sequence in self._sequences:
            sequence.finished = True
        return Increment(error=error, is_final=True)


class _Sequence:
    """Text and end of one output sequence."""

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer | None) -> None:
        self.finished = False
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self._stop_token_ids = frozenset(params.stop_token_ids or ())
        self._min_tokens = params.min_tokens or 0
        self._tokens = 0
        self._last_token: int | None = None
        self._cumulative_logprob = 0.0
        self._stop = StopStrings(params.stop or (), params.include_stop_str_in_output)
        self._detokenizer = (
            None
            if tokenizer is None
            else IncrementalDetokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        )

    def push(self, token_ids: list[int]) -> tuple[str, int]:
        """(settled text, how many of the tokens belong to the sequence: all of them unless a stop string ends it)."""
        text = ""
        for count, token_id in enumerate(token_ids, 1):
            self._tokens += 1
            self._last_token = token_id
            if self._detokenizer is not None:
                text += self._settle(self._detokenizer.push((token_id,)))
            if self.finished:
                return text, count
        return text, len(token_ids)

    def finish(self, reason: FinishReason | None) -> str:
        """End as the executor says, unless the last characters complete a stop string. Gives the text held back."""
        text = "" if self._detokenizer is None else self._settle(self._detokenizer.finish())
        if not self.finished:
            text += self._stop.flush()
            self.finished = True
            self.finish_reason = reason
            if reason == "stop" and self._last_token in self._stop_token_ids:
                self.stop_reason = self._last_token
        return text

    def add_logprobs(self, entries: list[_core.TokenLogProbs]) -> float | None:
        """The cumulative log-probability so far; None when it was not asked for."""
        for entry in entries:
            self._cumulative_logprob += entry.values[0]
        return self._cumulative_logprob if entries else None

    def _settle(self, text: str) -> str:
        if self._tokens < self._min_tokens:
            return text
        text, stopped = self._stop.push(text)
        if stopped is not None:
            self.finished = True
            self.finish_reason = "stop"
            self.stop_reason = stopped
        return text


def _logprobs(entry: _core.TokenLogProbs) -> dict[int, Logprob]:
    """``entry.ids`` is the chosen token, then the top ones by rank."""
    chosen, *top = zip(entry.ids, entry.values, strict=True)
    found = {chosen[0]: Logprob(chosen[1], entry.chosen_rank)}
    for rank, (token_id, value) in enumerate(top, 1):
        found.setdefault(token_id, Logprob(value, rank))
    return found
