"""What a request gives back. Names and fields follow TensorRT-LLM's LLM API.

``CompletionOutput`` grows as increments arrive; its ``*_diff`` properties show what the latest step of the iteration
added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FinishReason = Literal["stop", "length", "timeout", "cancelled"]


@dataclass(frozen=True)
class Logprob:
    """Natural log of a token's probability, and its rank by it (1: the most likely)."""

    logprob: float
    rank: int


LogprobResults = list[dict[int, Logprob]]  # by position: token id to Logprob, the chosen token first


@dataclass(frozen=True)
class Increment:
    """What one response adds to one sequence of a request. The fields mean what they do in the output classes."""

    sequence_index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: LogprobResults = field(default_factory=list)
    prompt_logprobs: LogprobResults = field(default_factory=list)
    cumulative_logprob: float | None = None
    context_logits: npt.NDArray[np.float32] | None = None
    generation_logits: npt.NDArray[np.float32] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    is_final: bool = False
    error: Exception | None = None


@dataclass
class CompletionOutput:
    """One output sequence of a request.

    ``finish_reason`` is None while it grows. ``stop_reason`` is the stop string or stop token id that ended it, None
    for the model's own end token. ``generation_logits`` is float32 [tokens, vocab].
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: LogprobResults = field(default_factory=list)
    prompt_logprobs: LogprobResults = field(default_factory=list)  # of prompt tokens 1.., on output 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    generation_logits: npt.NDArray[np.float32] | None = None
    _text_before: int = field(default=0, repr=False)
    _tokens_before: int = field(default=0, repr=False)

    @property
    def length(self) -> int:
        """Number of generated tokens."""
        return len(self.token_ids)

    @property
    def text_diff(self) -> str:
        return self.text[self._text_before :]

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._tokens_before :]

    @property
    def logprobs_diff(self) -> LogprobResults:
        return self.logprobs[self._tokens_before :]

    def begin_step(self) -> None:
        """From here on the ``*_diff`` properties count anew."""
        self._text_before = len(self.text)
        self._tokens_before = len(self.token_ids)

    def extend(self, increment: Increment) -> None:
        self.text += increment.text
        self.token_ids += increment.token_ids
        self.logprobs += increment.logprobs
        self.prompt_logprobs += increment.prompt_logprobs
        if increment.cumulative_logprob is not None:
            self.cumulative_logprob = increment.cumulative_logprob
        if increment.generation_logits is not None:
            self.generation_logits = _append_rows(self.generation_logits, increment.generation_logits)
        if increment.finish_reason is not None:
            self.finish_reason = increment.finish_reason
            self.stop_reason = increment.stop_reason


def _append_rows(rows: npt.NDArray[np.float32] | None, more: npt.NDArray[np.float32]) -> Any:
    import numpy as np

    return more if rows is None else np.concatenate((rows, more))
