"""What ``generate`` accepts as a prompt, made into token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from trtc.errors import RequestError
from trtc.runtime.chat import Message

if TYPE_CHECKING:
    from trtc.runtime.sampling_params import SamplingParams
    from trtc.runtime.tokenizer import Tokenizer

# Text, token ids, chat messages, or TensorRT-LLM's {"prompt": text} and {"prompt_token_ids": ids}.
PromptInput = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]

_EXPECTED = "expected text, a list of token ids, or a list of {role, content} messages"


def split_batch(inputs: PromptInput | Sequence[PromptInput]) -> tuple[list[PromptInput], bool]:
    """(the prompts, whether they came as a batch). A list of ids, or of messages, is one prompt."""
    if isinstance(inputs, (str, Mapping)) or _is_token_ids(inputs) or _is_chat(inputs):
        return [inputs], False
    if not isinstance(inputs, Sequence):
        raise RequestError(f"inputs: got {type(inputs).__name__}, {_EXPECTED}, or a list of such prompts")
    return list(cast(Sequence[PromptInput], inputs)), True


def encode_prompt(
    prompt: PromptInput, tokenizer: Tokenizer | None, params: SamplingParams
) -> tuple[str | None, list[int]]:
    """(text or None, token ids). Raises RequestError when the prompt is malformed or empty."""
    if isinstance(prompt, Mapping):
        prompt = _unwrap(prompt)
    text: str | None = None
    if _is_token_ids(prompt):
        ids = [int(i) for i in prompt]
        _check_ids(ids)
    elif isinstance(prompt, str):
        text = prompt
        ids = _need(tokenizer).encode(prompt, add_special_tokens=params.add_special_tokens)
    elif _is_chat(prompt):
        text = _need(tokenizer).apply_chat_template(prompt)
        ids = _need(tokenizer).encode(text, add_special_tokens=False)
    else:
        raise RequestError(f"prompt: got {_describe(prompt)}, {_EXPECTED}")
    if not ids:
        raise RequestError("prompt: has no tokens, expected at least one")
    return text, ids if params.truncate_prompt_tokens is None else ids[-params.truncate_prompt_tokens :]


def _is_token_ids(value: object) -> TypeGuard[Sequence[int]]:
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.ndim == 1 and np.issubdtype(value.dtype, np.integer)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
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


def _check_ids(ids: list[int]) -> None:
    for at, token_id in enumerate(ids):
        if not 0 <= token_id < 2**31:
            raise RequestError(f"prompt: token id {token_id} at index {at} is outside 0 to 2147483647")


def _need(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise RequestError("prompt: text needs the tokenizer, which was left out (skip_tokenizer_init); send token ids")
    return tokenizer


def _describe(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {type(value[0]).__name__}" if value else "an empty list"
    return type(value).__name__
