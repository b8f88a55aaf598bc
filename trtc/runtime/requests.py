"""``SamplingParams`` and a prompt, made into the executor's request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtc.errors import RequestError

if TYPE_CHECKING:
    from trtc import _core
    from trtc.runtime.sampling_params import SamplingParams
    from trtc.runtime.tokenizer import Tokenizer


def make_request(
    prompt_token_ids: list[int],
    params: SamplingParams,
    tokenizer: Tokenizer | None,
    *,
    end_ids: tuple[int, ...],
    streaming: bool,
    cache_salt: str | None = None,
) -> _core.Request:
    """``end_ids`` are the model's own end tokens; ``params`` may replace or ignore them.

    Stop strings are not part of the request: they are found in the text, token by token, so it must stream.
    """
    from trtc import _core

    if cache_salt is not None and not _is_text(cache_salt):
        raise RequestError(f"cache_salt: got {cache_salt!r}, expected text")
    end_id, more_end_ids = _end_ids(params, end_ids)
    return _core.Request(
        input_token_ids=prompt_token_ids,
        max_tokens=params.max_tokens,
        streaming=streaming or bool(params.stop),
        sampling_config=_core.SamplingConfig(
            num_return_sequences=params.n,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            min_tokens=params.min_tokens,
            seed=params.seed,
        ),
        output_config=_core.OutputConfig(
            log_probs=params.logprobs,
            prompt_log_probs=params.prompt_logprobs,
            return_context_logits=params.return_context_logits,
            return_generation_logits=params.return_generation_logits,
        ),
        end_id=end_id,
        stop_token_ids=[*more_end_ids, *(params.stop_token_ids or ())],
        bad_words=_bad_words(params, tokenizer),
        cache_salt=cache_salt,
    )


def _is_text(value: object) -> bool:
    """Whether C++ can take ``value`` as a string."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _end_ids(params: SamplingParams, end_ids: tuple[int, ...]) -> tuple[int | None, tuple[int, ...]]:
    if params.ignore_eos or params.end_id == -1:
        return None, ()
    if params.end_id is not None:
        return params.end_id, ()
    return (end_ids[0], end_ids[1:]) if end_ids else (None, ())


def _bad_words(params: SamplingParams, tokenizer: Tokenizer | None) -> list[list[int]]:
    words = [[i] for i in params.bad_token_ids or ()]
    for text in params.bad or ():
        if tokenizer is None:
            raise RequestError("bad: text needs the tokenizer, which was left out; use bad_token_ids")
        for spelling in dict.fromkeys((text, " " + text.lstrip(" "))):
            ids = tokenizer.encode(spelling, add_special_tokens=False)
            if ids and ids not in words:
                words.append(ids)
    return words
