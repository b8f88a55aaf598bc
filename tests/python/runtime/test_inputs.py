import numpy as np
import pytest

from tests.tiny_models import BOS
from trtc import RequestError, SamplingParams
from trtc.runtime.inputs import encode_prompt, render_chat, split_batch

CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "single", ["text", [1, 2, 3], np.array([1, 2]), CHAT, {"prompt": "text"}, {"prompt_token_ids": [1]}, (1, 2)]
)
def test_one_prompt_and_a_list_of_it_are_told_apart(single):
    prompts, batched = split_batch(single)
    assert len(prompts) == 1 and prompts[0] is single and not batched
    prompts, batched = split_batch([single, single])
    assert len(prompts) == 2 and prompts[0] is single and batched


@pytest.mark.parametrize("inputs", [b"hi", bytearray(b"hi"), 5, None, {"a"}])
def test_what_is_neither_prompt_nor_batch_is_refused(inputs):
    with pytest.raises(RequestError, match=f"inputs: got {type(inputs).__name__}"):
        split_batch(inputs)


@pytest.mark.parametrize("variables", [5, {"messages": []}, {"add_generation_prompt": False}, {"self": 1}, {1: 2}])
def test_template_variables_that_cannot_be_set_are_refused(byte_tokenizer, variables):
    with pytest.raises(RequestError, match="chat_template_kwargs: "):
        render_chat(CHAT, byte_tokenizer, variables=variables)


def test_an_empty_list_is_an_empty_batch():
    assert split_batch([]) == ([], True)


def test_text_gets_special_tokens_unless_told_otherwise(byte_tokenizer):
    assert encode_prompt("hi", byte_tokenizer, SamplingParams()) == ("hi", [BOS, *b"hi"])
    assert encode_prompt("hi", byte_tokenizer, SamplingParams(add_special_tokens=False)) == ("hi", [*b"hi"])


def test_token_ids_are_taken_as_they_are(byte_tokenizer):
    assert encode_prompt([5, 6], byte_tokenizer, SamplingParams()) == (None, [5, 6])
    assert encode_prompt(np.array([5, 6], np.int64), None, SamplingParams()) == (None, [5, 6])
    assert encode_prompt({"prompt_token_ids": [5, 6]}, None, SamplingParams()) == (None, [5, 6])


def test_messages_go_through_the_chat_template_with_one_bos(byte_tokenizer):
    text, ids = encode_prompt(CHAT, byte_tokenizer, SamplingParams())
    assert text is not None and text.startswith("<s><|im_start|>user\nhi<|im_end|>")
    assert ids[0] == BOS and ids.count(BOS) == 1


def test_truncation_keeps_the_last_tokens(byte_tokenizer):
    assert encode_prompt([1, 2, 3, 4], byte_tokenizer, SamplingParams(truncate_prompt_tokens=3)) == (None, [2, 3, 4])


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (5, "prompt: got int"),
        (None, "prompt: got NoneType"),
        ([], "prompt: got an empty list"),
        ([1.5], "prompt: got a list of float"),
        ([True], "prompt: got a list of bool"),
        ([1, 2.5], "prompt: got 2.5 at index 1, expected a token id"),
        ([1, "a"], "prompt: got 'a' at index 1"),
        ([1, None], "prompt: got None at index 1"),
        ([1, True], "prompt: got True at index 1"),
        (b"hi", "prompt: got bytes"),
        (bytearray(b"hi"), "prompt: got bytearray"),
        ([3, -1], "token id -1 at index 1"),
        ([2**31], "token id 2147483648 at index 0"),
        ({"text": "hi"}, r"got an object with \['text'\]"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "expected either prompt or prompt_token_ids"),
        ([{"role": "user"}], r"messages\[0\].content"),
    ],
)
def test_what_is_no_prompt_is_refused(byte_tokenizer, prompt, message):
    with pytest.raises(RequestError, match=message):
        encode_prompt(prompt, byte_tokenizer, SamplingParams())


def test_text_without_a_tokenizer_is_refused():
    for prompt in ("hi", CHAT):
        with pytest.raises(RequestError, match="needs the tokenizer"):
            encode_prompt(prompt, None, SamplingParams())


def test_a_prompt_without_tokens_is_refused(byte_tokenizer):
    with pytest.raises(RequestError, match="has no tokens"):
        encode_prompt("", byte_tokenizer, SamplingParams(add_special_tokens=False))
