"""Encoding, decoding and the files of an engine's tokenizer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from tests.text_corpus import DIGIT_TEXTS, TEXTS
from tests.tiny_models import save_tiny_tokenizer
from tests.tokenizer_kinds import CONFIG, KINDS, byte_level, metaspace, sentencepiece
from trtc.errors import EngineError, RequestError
from trtc.runtime.token_spelling import BYTE_OF_CHAR
from trtc.runtime.tokenizer import Tokenizer

TOKENIZERS = {kind: Tokenizer(make(), CONFIG) for kind, make in KINDS.items()}
BYTE_LEVEL = TOKENIZERS["byte_level"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_survives_a_round_trip(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in (*TEXTS, *DIGIT_TEXTS):
        expected = text.replace("▁", " ") if kind == "sentencepiece" else text
        assert tokenizer.decode(tokenizer.encode(text)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_valid_text_agrees_with_the_tokenizers_library(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in (*TEXTS, *DIGIT_TEXTS, "<s>the <|user|> then</s>", " two  spaces"):
        ids = tokenizer.encode(text)
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == tokenizer.backend.decode(ids, skip_special_tokens=skip), text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=20), st.booleans())
def test_byte_level_decoding_of_any_ids_agrees_with_the_library(ids: list[int], skip: bool) -> None:
    assert BYTE_LEVEL.decode(ids, skip) == BYTE_LEVEL.backend.decode(ids, skip_special_tokens=skip)


def test_valid_characters_beside_invalid_bytes_are_kept() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    first = tokenizer.backend.token_to_id("<0x00>")
    ids = [first + byte for byte in (*"é".encode(), 0xFF, ord("x"))]
    assert tokenizer.decode(ids) == "é\ufffdx"


def test_metaspace_decoder_strips_its_prefix_space() -> None:
    tokenizer = Tokenizer(metaspace(), CONFIG)
    ids = tokenizer.encode("the  inn")
    assert tokenizer.decode(ids) == tokenizer.backend.decode(ids) == "the  inn"


def test_ids_without_a_token_give_no_text() -> None:
    ids = BYTE_LEVEL.encode("hi")
    assert BYTE_LEVEL.decode([*ids, BYTE_LEVEL.vocab_size + 7, 2**40, -1]) == "hi"


def test_special_tokens_are_skipped_on_request_and_other_added_tokens_never() -> None:
    ids = BYTE_LEVEL.encode("<|user|>a<think>b</s>")
    assert BYTE_LEVEL.decode(ids) == "a<think>b"
    assert BYTE_LEVEL.decode(ids, skip_special_tokens=False) == "<|user|>a<think>b</s>"


def test_byte_table_covers_every_byte_once() -> None:
    assert sorted(BYTE_OF_CHAR.values()) == list(range(256))


@pytest.mark.parametrize(("bos", "eos"), [(True, False), (True, True), (False, True), (False, False)])
def test_add_bos_and_add_eos_of_the_config_are_obeyed(bos: bool, eos: bool) -> None:
    tokenizer = Tokenizer(byte_level(), {**CONFIG, "add_bos_token": bos, "add_eos_token": eos})
    plain = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.encode("hello") == [0] * bos + plain + [1] * eos


def test_prompt_that_begins_with_bos_gets_no_second_one() -> None:
    tokenizer = Tokenizer(byte_level(), {**CONFIG, "add_bos_token": True})
    assert tokenizer.encode("<s>hello") == tokenizer.encode("hello")
    assert tokenizer.encode("<s><s>hello")[:3] == [0, 0, tokenizer.encode("hello")[1]]


def test_add_bos_without_a_bos_token_adds_nothing() -> None:
    tokenizer = Tokenizer(byte_level(), {"add_bos_token": True})
    assert tokenizer.encode("hello") == tokenizer.encode("hello", add_special_tokens=False)


def test_an_added_token_that_is_not_in_the_vocabulary_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match=r"adds the token '<nowhere>', which tokenizer\.json does not have"):
        Tokenizer(byte_level(), {"add_bos_token": True, "bos_token": "<nowhere>"})


@pytest.mark.parametrize(
    ("generation", "expected"), [({}, (1,)), ({"eos_token_id": 2}, (2,)), ({"eos_token_id": [2, 1]}, (2, 1))]
)
def test_generation_config_decides_which_tokens_end_an_answer(
    generation: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert Tokenizer(byte_level(), CONFIG, generation).eos_token_ids == expected


def test_padding_and_truncation_of_the_file_are_ignored() -> None:
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    assert Tokenizer(backend, CONFIG).encode("a b c d e") == BYTE_LEVEL.encode("a b c d e")


@pytest.mark.parametrize("text", [7, None, b"bytes", ["list"]])
def test_prompt_that_is_not_text_is_a_request_error(text: Any) -> None:
    with pytest.raises(RequestError, match=r"prompt: got .*, expected text"):
        BYTE_LEVEL.encode(text)


def test_lone_surrogates_are_a_request_error() -> None:
    with pytest.raises(RequestError, match="prompt: not valid Unicode"):
        BYTE_LEVEL.encode("bad \ud800 text")


def test_directory_gives_tokenizer_template_and_settings(tmp_path: Path) -> None:
    save_tiny_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_ids) == (261, 256, (257,))
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages) == "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode_chat(messages).count(256) == 1
    assert tokenizer.encode("hi") == [256, 104, 105]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, r"has no tokenizer\.json"),
        ("tokenizer.json", "{", r"tokenizer\.json is not a tokenizer"),
        ("tokenizer.json", '{"version": "1.0"}', r"tokenizer\.json is not a tokenizer"),
        ("tokenizer_config.json", "{", r"tokenizer_config\.json cannot be read"),
        ("generation_config.json", "[]", r"generation_config\.json holds a JSON list"),
        ("generation_config.json", '{"eos_token_id": "</s>"}', r"eos_token_id is '</s>', expected a token id"),
        ("generation_config.json", '{"eos_token_id": [1, null]}', r"expected a token id or a list of them"),
    ],
)
def test_damaged_tokenizer_files_are_engine_errors(
    name: str, content: str | None, message: str, tmp_path: Path
) -> None:
    save_tiny_tokenizer(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(EngineError, match=message):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.BPEDecoder()])
def test_tokenizers_of_other_families_are_refused(decoder: Any) -> None:
    backend = sentencepiece()
    backend.decoder = decoder
    with pytest.raises(EngineError, match=r"tokenizer\.json (has no decoder|decodes with)"):
        Tokenizer(backend)


def test_model_without_a_template_says_so() -> None:
    with pytest.raises(RequestError, match=r"messages: this model has no chat template"):
        BYTE_LEVEL.apply_chat_template([{"role": "user", "content": "hi"}])


def test_text_at_run_time_needs_neither_torch_nor_transformers_nor_onnx() -> None:
    code = (
        "import sys, json; import trtc.runtime.tokenizer, trtc.runtime.detokenizer, trtc.runtime.chat;"
        "heavy = ('torch', 'transformers', 'onnx', 'numpy', 'jinja2', 'tokenizers');"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
