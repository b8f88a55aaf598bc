"""Incremental text: whole characters, independent of grouping, equal to decoding everything at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text_corpus import TEXTS
from tests.tokenizer_kinds import CONFIG, KINDS
from trtc.errors import RequestError
from trtc.runtime.detokenizer import IncrementalDetokenizer, StopStrings
from trtc.runtime.tokenizer import Tokenizer

TOKENIZERS = {kind: Tokenizer(make(), CONFIG) for kind, make in KINDS.items()}


@st.composite
def grouped(draw: Any, items: st.SearchStrategy[list[Any]]) -> list[list[Any]]:
    """A list cut into consecutive groups, empty ones among them."""
    values = draw(items)
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=6)))
    return [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]


def any_ids(kind: str) -> st.SearchStrategy[list[int]]:
    """Random ids (mostly invalid UTF-8) or the tokens of a text, perhaps cut short inside a character."""
    tokenizer = TOKENIZERS[kind]
    random_ids = st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=24)
    text = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12)).map(tokenizer.encode)
    return st.one_of(random_ids, text, text.map(lambda ids: ids[: len(ids) * 2 // 3]))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_text_is_that_of_decoding_everything_however_tokens_are_grouped(kind: str, data: Any, skip: bool) -> None:
    tokenizer = TOKENIZERS[kind]
    groups = data.draw(grouped(any_ids(kind)))
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip)
    pieces = [detokenizer.push(group) for group in groups] + [detokenizer.finish()]
    assert "".join(pieces) == tokenizer.decode([i for group in groups for i in group], skip)


@pytest.mark.parametrize("kind", KINDS)
def test_no_piece_holds_half_a_character(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in TEXTS:
        detokenizer = IncrementalDetokenizer(tokenizer)
        pieces = [detokenizer.push([token]) for token in tokenizer.encode(text)]
        assert "\ufffd" not in "".join(pieces)
        assert detokenizer.finish() == ""


def test_a_character_appears_with_its_last_byte() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    first = tokenizer.backend.token_to_id("<0x00>")
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push([first + byte]) for byte in "😀".encode()] == ["", "", "", "😀"]


def test_an_unfinished_character_becomes_a_replacement_in_the_end() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    first = tokenizer.backend.token_to_id("<0x00>")
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert detokenizer.push([first + byte for byte in "a😀".encode()[:-1]]) == "a"
    assert (detokenizer.finish(), detokenizer.finish(), detokenizer.push([first + 97])) == ("\ufffd", "", "")


def test_only_the_first_space_of_a_sentencepiece_text_is_dropped() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    space = tokenizer.backend.token_to_id("▁")
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push([space]) for _ in range(3)] == ["", " ", " "]


def first_stop(text: str, stops: list[str]) -> tuple[int, int, str] | None:
    """(end, start, word) of the stop string that completes first, by trying every end."""
    for end in range(len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return end, start, text[start:end]
    return None


STOP_TEXT = st.text("abc é", max_size=24)
STOPS = st.lists(st.text("abc é", min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=500, deadline=None)
@given(groups=grouped(STOP_TEXT.map(list)), stops=STOPS, include=st.booleans())
def test_stop_strings_cut_the_text_where_the_first_one_completes(
    groups: list[list[str]], stops: list[str], include: bool
) -> None:
    text = "".join("".join(group) for group in groups)
    finder, got, stopped = StopStrings(stops, include), "", None
    for group in groups:
        settled, stopped = finder.push("".join(group))
        got += settled
        if stopped is not None:
            break
    else:
        got += finder.flush()
    found = first_stop(text, stops)
    if found is None:
        assert (got, stopped) == (text, None)
    else:
        end, start, word = found
        assert (got, stopped) == (text[: end if include else start], word)


@settings(max_examples=300, deadline=None)
@given(text=STOP_TEXT, stops=STOPS)
def test_nothing_is_held_back_without_need(text: str, stops: list[str]) -> None:
    """What is held is exactly the longest end of the text that begins a stop string."""
    finder, got = StopStrings(stops), ""
    for at, char in enumerate(text):
        settled, stopped = finder.push(char)
        if stopped is not None:
            return
        got += settled
        seen = text[: at + 1]
        longest = max((n for word in stops for n in range(1, len(word)) if seen.endswith(word[:n])), default=0)
        assert got == seen[: len(seen) - longest]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200, deadline=None)
@given(data=st.data(), include=st.booleans())
def test_stopping_does_not_depend_on_how_tokens_are_grouped(kind: str, data: Any, include: bool) -> None:
    tokenizer = TOKENIZERS[kind]
    groups = data.draw(grouped(any_ids(kind)))
    ids = [i for group in groups for i in group]
    text = tokenizer.decode(ids)
    at = data.draw(st.integers(0, max(0, len(text) - 1)))
    stops = [text[at : at + data.draw(st.integers(1, 4))] or "never", "zzz"]
    together = IncrementalDetokenizer(tokenizer, stop=stops, include_stop=include)
    expected = together.push(ids)
    expected += together.finish()
    apart = IncrementalDetokenizer(tokenizer, stop=stops, include_stop=include)
    got = "".join([apart.push(group) for group in groups] + [apart.finish()])
    assert (got, apart.stopped) == (expected, together.stopped)


def test_stop_string_is_found_across_token_borders_and_ends_the_text() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["END", "日本"])
    byte_tokens = [tokenizer.encode(char)[0] for char in "one EN"]
    assert "".join(detokenizer.push([token]) for token in byte_tokens) == "one "
    assert detokenizer.stopped is None
    assert detokenizer.push(tokenizer.encode("D of it")) == ""
    assert detokenizer.stopped == "END"
    assert (detokenizer.push(tokenizer.encode("more")), detokenizer.finish()) == ("", "")


def test_text_held_back_comes_out_when_no_stop_follows() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    detokenizer = IncrementalDetokenizer(tokenizer, stop="<stop>")
    assert detokenizer.push(tokenizer.encode("a<st")) == "a"
    assert detokenizer.finish() == "<st"
    assert detokenizer.stopped is None


@pytest.mark.parametrize("stop", [[""], ["a", ""], [3], [None]])
def test_malformed_stop_strings_are_a_request_error(stop: list[Any]) -> None:
    with pytest.raises(RequestError, match=r"stop: got .*, expected non-empty strings"):
        IncrementalDetokenizer(TOKENIZERS["byte_level"], stop=stop)


def test_pushing_a_token_asks_for_that_token_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work per token does not grow with the text: each push looks up just its own tokens."""
    tokenizer = TOKENIZERS["byte_level"]
    asked: list[int] = []
    spell = tokenizer.token_bytes
    monkeypatch.setattr(tokenizer, "token_bytes", lambda i, skip: asked.append(i) or spell(i, skip))
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["never"])
    ids = tokenizer.encode(TEXTS[0])
    for token in ids:
        detokenizer.push([token])
    assert asked == ids
