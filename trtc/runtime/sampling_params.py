"""``SamplingParams``: how one request is sampled and what it returns. Names follow TensorRT-LLM's LLM API."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from trtc.config import Settings
from trtc.errors import RequestError, TrtcError

_INT32_MAX = 2**31 - 1
TokenId = Annotated[int, Field(ge=0, le=_INT32_MAX)]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(lambda value: _as_list(value))
]  # one string is as good as a list of one
Finite = Annotated[float, Field(allow_inf_nan=False)]


class SamplingParams(Settings):
    """Greedy unless temperature, top_k, top_p or min_p is set. Unset fields are off.

    Raises RequestError naming the field when a value is out of range or a field is unknown.
    """

    invalid: ClassVar[type[TrtcError]] = RequestError

    max_tokens: int = Field(32, ge=1, le=_INT32_MAX)
    min_tokens: int | None = Field(None, ge=0, le=_INT32_MAX)  # until then nothing but max_tokens ends the output
    n: int = Field(1, ge=1, le=_INT32_MAX)  # outputs per prompt; they share the prompt's KV blocks
    best_of: int | None = None  # only as n

    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)  # 0: greedy
    top_k: int | None = Field(None, ge=0, le=_INT32_MAX)  # 0: off
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**64)  # None: 0

    repetition_penalty: float | None = Field(None, gt=0, allow_inf_nan=False)  # over prompt and output
    presence_penalty: Finite | None = None  # over output
    frequency_penalty: Finite | None = None  # over output

    end_id: int | None = Field(None, ge=-1, le=_INT32_MAX)  # None: the model's own; -1: none
    ignore_eos: bool = False
    stop: Texts | None = None  # found in the text, wherever token borders fall
    stop_token_ids: tuple[TokenId, ...] | None = None
    include_stop_str_in_output: bool = False
    bad: Texts | None = None  # as the tokenizer writes it, with and without a space before it
    bad_token_ids: tuple[TokenId, ...] | None = None

    logprobs: int | None = Field(None, ge=0, le=_INT32_MAX)  # top-n per output token, besides the chosen one
    prompt_logprobs: int | None = Field(None, ge=0, le=_INT32_MAX)
    return_context_logits: bool = False
    return_generation_logits: bool = False

    detokenize: bool = True
    skip_special_tokens: bool = True
    add_special_tokens: bool = True  # to a text prompt; a chat template writes its own
    truncate_prompt_tokens: int | None = Field(None, ge=1)  # keep only the last of them

    @property
    def is_greedy(self) -> bool:
        """The most likely token is taken each time."""
        chosen = (self.temperature, self.top_k, self.top_p, self.min_p)
        return self.temperature == 0 or self.top_k == 1 or all(value is None for value in chosen)

    @model_validator(mode="after")
    def _fields_agree(self) -> SamplingParams:
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of: got {self.best_of} with n {self.n}, expected the same number or none")
        if self.n > 1 and self.is_greedy:
            raise ValueError(f"n: got {self.n} with greedy sampling, whose outputs would be equal; set temperature")
        if self.min_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens: got {self.min_tokens}, expected at most max_tokens {self.max_tokens}")
        if self.stop is not None and not self.detokenize:
            raise ValueError("stop: stop strings are found in the text, which detokenize=False leaves out")
        return self


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
