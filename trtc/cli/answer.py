"""One output of ``trtc run``: streamed as it comes, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtc.cli.terminal import stderr

if TYPE_CHECKING:
    from trtc.runtime.inputs import PromptInput
    from trtc.runtime.llm import LLM
    from trtc.runtime.outputs import CompletionOutput
    from trtc.runtime.sampling_params import SamplingParams


@dataclass(frozen=True)
class Answer:
    """A finished output and how long it took. Times in seconds since the request was sent."""

    output: CompletionOutput
    prompt_tokens: int
    first_token_seconds: float
    total_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of decoding: the first token belongs to the prompt's prefill."""
        decoded = self.output.length - 1
        return decoded / max(self.total_seconds - self.first_token_seconds, 1e-9) if decoded > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.output.text,
            "token_ids": self.output.token_ids,
            "finish_reason": self.output.finish_reason,
            "stop_reason": self.output.stop_reason,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output.length,
            "first_token_seconds": round(self.first_token_seconds, 4),
            "total_seconds": round(self.total_seconds, 4),
            "tokens_per_second": round(self.tokens_per_second, 2),
        }


def answer(llm: LLM, prompt: PromptInput, params: SamplingParams, show: Callable[[str], None] | None) -> Answer:
    """Generate for ``prompt``, giving text to ``show`` as it comes.

    ``max_tokens`` is cut to what still fits the engine. Raises RequestError when the prompt does not fit.
    """
    from trtc.runtime.inputs import encode_prompt

    _, token_ids = encode_prompt(prompt, llm.tokenizer, params)
    room = max(llm.max_seq_len - len(token_ids), 1)
    params = params.model_copy(update={"max_tokens": min(params.max_tokens, room)})
    start = time.perf_counter()
    first: float | None = None
    request = llm.generate_async(token_ids, params)
    for step in request:
        first = first or time.perf_counter()
        if show is not None:
            show(step.outputs[0].text_diff)
    if show is not None:
        show("\n")
    end = time.perf_counter()
    return Answer(request.outputs[0], len(token_ids), (first or end) - start, end - start)


def show_timing(done: Answer) -> None:
    """One line on stderr."""
    stderr().print(
        f"[{done.prompt_tokens} prompt tokens, first token after {done.first_token_seconds:.2f} s; "
        f"{done.output.length} tokens, {done.tokens_per_second:.1f} tokens/s]",
        style="dim",
        markup=False,
        soft_wrap=True,
    )
