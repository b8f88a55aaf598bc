"""What ``generate`` accepts as a prompt, made into token ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from trtc.errors import RequestError
from trtc.runtime.chat import Message

if TYPE_CHECKING:
    from trtc.runtime.sampling_params import SamplingParams
    from trtc.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class RenderedChat:
    """Text that a chat template wrote, special tokens included."""

    text: str


# Text, token ids, chat messages, or TensorRT-LLM's {"prompt": text} and {"prompt_token_ids": ids}.
PromptInput = str | Sequence[int] | Sequence[Message] | Mapping[str, Any] | RenderedChat

_BYTES = (bytes, bytearray, memoryview)  # sequences of integers, but neither text nor token ids
_EXPECTED = "expected text, a list of token ids, or a list of {role, content} messages"


def split_batch(inputs: PromptInput | Sequence[PromptInput]) -> tuple[list[PromptInput], bool]:
    """(the prompts, whether they came as a batch). A list of ids, or of messages, is one prompt."""
    if isinstance(inputs, (str, Mapping, RenderedChat)) or _is_token_ids(inputs) or _is_chat(inputs):
        return [inputs], False
    if not isinstance(inputs, Sequence) or isinstance(inputs, _BYTES):
        raise RequestError(f"inputs: got {type(inputs).__name__}, {_EXPECTED}, or a list of such prompts")
    return list(cast(Sequence[PromptInput], inputs)), True


@contextmanager
def naming(index: int, batched: bool) -> Iterator[None]:
    """A RequestError raised inside names prompt ``index`` of a batch."""
    try:
        yield
    except RequestError as error:
        if not batched:
            raise
        raise RequestError(f"inputs[{index}]: {error}") from error


def encode_prompt(
    prompt: PromptInput, tokenizer: Tokenizer | None, params: SamplingParams
) -> tuple[str | None, list[int]]:
    """(text or None, token ids). Raises RequestError when the prompt is malformed or empty."""
    if isinstance(prompt, Mapping):
        prompt = _unwrap(prompt)
    if _is_chat(prompt):
        prompt = render_chat(prompt, tokenizer)
    text: str | None = None
    if _is_token_ids(prompt):
        ids = _checked_ids(prompt)
    elif isinstance(prompt, str):
        text = prompt
        ids = _need(tokenizer).encode(prompt, add_special_tokens=params.add_special_tokens)
    elif isinstance(prompt, RenderedChat):
        text = prompt.text
        ids = _need(tokenizer).encode(text, add_special_tokens=False)
    else:
        raise RequestError(f"prompt: got {_describe(prompt)}, {_EXPECTED}")
    if not ids:
        raise RequestError("prompt: has no tokens, expected at least one")
    return text, ids if params.truncate_prompt_tokens is None else ids[-params.truncate_prompt_tokens :]


def render_chat(
    messages: Sequence[Message],
    tokenizer: Tokenizer | None,
    add_generation_prompt: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> RenderedChat:
    """``messages`` through the chat template; ``variables`` are further names for it. Raises RequestError."""
    if variables is not None and not isinstance(variables, Mapping):
        raise RequestError(f"chat_template_kwargs: got {type(variables).__name__}, expected a dict of names")
    for name in variables or {}:
        if not isinstance(name, str) or name in ("self", "messages", "add_generation_prompt"):
            raise RequestError(f"chat_template_kwargs: {name!r} is no name for it to set; it is an argument of its own")
    text = _need(tokenizer).apply_chat_template(messages, add_generation_prompt, **(variables or {}))
    return RenderedChat(text)


def _is_token_ids(value: object) -> TypeGuard[Sequence[int]]:
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.ndim == 1 and np.issubdtype(value.dtype, np.integer)
    if not isinstance(value, Sequence) or isinstance(value, (str, *_BYTES)) or not value:
        return False
    return isinstance(value[0], (int, np.integer)) and not isinstance(value[0], bool)


def _is_chat(value: object) -> TypeGuard[Sequence[Message]]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], Mapping) and "role" in value[0]


def _unwrap(prompt: Mapping[str, Any]) -> PromptInput:
    if len(prompt) == 1:
        for name in ("prompt", "prompt_token_ids"):
            if name in prompt:
                inner: PromptInput = prompt[name]
                return inner
    raise RequestError(
        f"prompt: got an object with {sorted(map(str, prompt))}, expected either prompt or prompt_token_ids"
    )


def _checked_ids(values: Sequence[int]) -> list[int]:
    import numpy as np

    for at, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise RequestError(f"prompt: got {value!r} at index {at}, expected a token id like those before it")
        if not 0 <= value < 2**31:
            raise RequestError(f"prompt: token id {value} at index {at} is outside 0 to 2147483647")
    return [int(value) for value in values]


def _need(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise RequestError("prompt: text needs the tokenizer, which was left out (skip_tokenizer_init); send token ids")
    return tokenizer


def _describe(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, (str, *_BYTES)):
        return f"a list of {type(value[0]).__name__}" if value else "an empty list"
    return type(value).__name__
