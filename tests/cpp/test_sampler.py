"""The sampler against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtc import _core, _test_executor
from trtc.errors import RequestError

VOCAB = 12


def sample(
    logits: Any, output: tuple[int, ...] = (), sequence_index: int = 0, prompt: tuple[int, ...] = (0,), **kw: Any
):
    """Token and log-probs; keywords are of SamplingConfig, or of Request and OutputConfig where they exist there."""
    request_fields = {k: kw.pop(k) for k in ("end_id", "stop_token_ids", "bad_words", "max_tokens") if k in kw}
    output_config = _core.OutputConfig(log_probs=kw.pop("log_probs", None))
    request = _core.Request(
        input_token_ids=list(prompt),
        sampling_config=_core.SamplingConfig(**kw),
        output_config=output_config,
        **request_fields,
    )
    return _test_executor.sample(np.asarray(logits, np.float32), request, list(output), sequence_index)


def token(logits: Any, *args: Any, **kw: Any) -> int:
    return sample(logits, *args, **kw)[0]


def draws(logits: Any, count: int, **kw: Any) -> np.ndarray:
    """How often each token comes at `count` positions of one sequence."""
    tokens = [token(logits, sequence_index=i % 7, prompt=(0,) * (1 + i // 7), **kw) for i in range(count)]
    return np.bincount(tokens, minlength=len(logits))


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return weights / weights.sum()


def assert_distributed(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square below its 1 - 1e-5 quantile (Wilson-Hilferty); the seeds are fixed, so this never flickers."""
    assert not counts[probabilities == 0].any()
    kept = probabilities > 0
    expected = counts.sum() * probabilities[kept]
    chi2 = ((counts[kept] - expected) ** 2 / expected).sum()
    dof = kept.sum() - 1
    assert chi2 < dof * (1 - 2 / (9 * dof) + 4.265 * np.sqrt(2 / (9 * dof))) ** 3


RANDOM = np.random.default_rng(7).normal(size=VOCAB).astype(np.float32) * 1.5


def test_philox_gives_the_published_numbers() -> None:
    """Known-answer vectors of the Random123 distribution (kat_vectors)."""
    ones = 0xFFFFFFFF
    philox = _test_executor.philox4x32
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


def test_draws_are_uniform_and_differ_by_seed_sequence_and_position() -> None:
    values = [_test_executor.uniform_draw(s, i, p) for s in (0, 1, 2**40) for i in range(10) for p in range(100)]
    assert len(set(values)) == len(values)
    assert min(values) >= 0 and max(values) < 1
    assert_distributed(np.histogram(values, bins=20, range=(0, 1))[0], np.full(20, 0.05))


def test_greedy_takes_the_greatest_and_the_lowest_id_among_equals() -> None:
    assert token([1, 3, 3, 2]) == 1
    assert token([1, 3, 4, 2], temperature=0.0) == 2
    assert token([1, 3, 4, 4], top_k=1, temperature=5.0) == 2


def test_the_seed_decides_the_draw() -> None:
    first = [token(RANDOM, temperature=2.0, seed=s) for s in range(30)]
    assert first == [token(RANDOM, temperature=2.0, seed=s) for s in range(30)]
    assert len(set(first)) > 3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_shapes_the_distribution(temperature: float) -> None:
    assert_distributed(draws(RANDOM, 3000, temperature=temperature), softmax(RANDOM / temperature))


def kept(mask: np.ndarray) -> np.ndarray:
    return softmax(np.where(mask, RANDOM, -np.inf))


def test_top_k_keeps_the_k_best() -> None:
    best = np.zeros(VOCAB, bool)
    best[np.argsort(-RANDOM)[:4]] = True
    assert_distributed(draws(RANDOM, 3000, top_k=4), kept(best))


@pytest.mark.parametrize("top_p", [0.3, 0.7, 0.9])
def test_top_p_keeps_the_shortest_run_that_reaches_it(top_p: float) -> None:
    order = np.argsort(-RANDOM)
    count = int(np.searchsorted(np.cumsum(softmax(RANDOM)[order]), top_p)) + 1
    best = np.zeros(VOCAB, bool)
    best[order[:count]] = True
    assert_distributed(draws(RANDOM, 3000, top_p=top_p), kept(best)) if count > 1 else None
    assert draws(RANDOM, 300, top_p=top_p)[order[count:]].sum() == 0


def test_top_p_over_a_flat_large_vocabulary_sorts_as_far_as_it_must() -> None:
    logits = np.zeros(5000, np.float32)
    tokens = [token(logits, top_p=0.5, seed=s) for s in range(200)]
    assert max(tokens) < 2500 and max(tokens) > 2000


def test_top_p_applies_within_top_k() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    assert set(np.flatnonzero(draws(logits, 400, top_k=2, top_p=0.5))) == {0}
    assert set(np.flatnonzero(draws(logits, 400, top_k=2, top_p=0.6))) == {0, 1}


def test_min_p_drops_what_is_unlikely_against_the_best() -> None:
    probabilities = softmax(RANDOM)
    assert_distributed(draws(RANDOM, 3000, min_p=0.25), kept(probabilities >= 0.25 * probabilities.max()))


@given(
    logits=st.lists(st.floats(-30, 30, width=32), min_size=VOCAB, max_size=VOCAB),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5),
    output=st.lists(st.integers(0, VOCAB - 1), max_size=8),
    repetition=st.floats(0.5, 2, width=32),
    presence=st.floats(-2, 2, width=32),
    frequency=st.floats(-2, 2, width=32),
)
def test_penalties_match_numpy(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    expected = np.array(logits, np.float64)
    counts = np.bincount(output, minlength=VOCAB)
    seen = (np.bincount(prompt, minlength=VOCAB) + counts) > 0
    expected = np.where(seen, np.where(expected > 0, expected / repetition, expected * repetition), expected)
    expected -= counts * frequency + (counts > 0) * presence
    log_probs = np.log(softmax(expected) + 1e-300)
    _, entry = sample(
        logits,
        tuple(output),
        prompt=tuple(prompt),
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        log_probs=VOCAB,
    )
    np.testing.assert_allclose(entry.values, log_probs[entry.ids], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1e-40},
        {"frequency_penalty": -3e38},
        {"frequency_penalty": 3e38, "presence_penalty": 3e38},
    ],
)
def test_penalties_that_overflow_are_named_and_not_blamed_on_the_model(penalties: dict[str, float]) -> None:
    with pytest.raises(RequestError, match="repetition_penalty, frequency_penalty and presence_penalty take a logit"):
        token([1.0, 2.0, 3.0], (1, 1), **penalties)


def test_end_ids_are_masked_until_min_tokens() -> None:
    masked = {"end_id": 2, "stop_token_ids": [1], "min_tokens": 2, "max_tokens": 5}
    logits = [0.0, 4.0, 5.0, 3.0]
    assert token(logits, (), **masked) == 3
    assert token(logits, (3,), **masked) == 3
    assert token(logits, (3, 3), **masked) == 2


def test_the_last_token_of_a_bad_word_is_masked_after_the_others() -> None:
    logits = [0.0, 1.0, 9.0, 5.0]
    words = {"bad_words": [[0, 1, 2], [3]]}
    assert token(logits, (0,), **words) == 2
    assert token(logits, (0, 1), **words) == 1
    assert token(logits, (1, 0, 1), **words) == 1


def test_a_bad_word_does_not_begin_in_the_prompt() -> None:
    assert token([0.0, 1.0, 9.0], (), prompt=(0, 1), bad_words=[[1, 2]]) == 2


@given(st.lists(st.floats(-50, 50, width=32), min_size=VOCAB, max_size=VOCAB), st.integers(0, VOCAB))
@settings(max_examples=50)
def test_log_probs_are_the_chosen_one_and_the_best_by_rank(logits: list[float], top_n: int) -> None:
    chosen, entry = sample(logits, log_probs=top_n, temperature=1.0)
    row = np.array(logits, np.float32).astype(np.float64)
    expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
    order = np.lexsort((np.arange(VOCAB), -row))
    assert entry.ids == [chosen, *order[:top_n]]
    assert entry.chosen_rank == list(order).index(chosen) + 1
    np.testing.assert_allclose(entry.values, expected[entry.ids], rtol=1e-5, atol=1e-5)


def test_prompt_log_probs_are_of_the_given_token() -> None:
    entry = _test_executor.prompt_log_probs(RANDOM, 3, 1)
    assert entry.ids == [3, int(np.argmax(RANDOM))]
    np.testing.assert_allclose(entry.values, np.log(softmax(RANDOM))[entry.ids], rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_numbers_are_refused(bad: float) -> None:
    with pytest.raises(RequestError, match="NaN or infinite"):
        token([0.0, bad, 1.0])


def test_a_wholly_masked_vocabulary_is_refused() -> None:
    with pytest.raises(RequestError, match="no token is allowed"):
        token([0.0, 1.0], bad_words=[[0], [1]])


FINISHED = _core.FinishReason


@pytest.mark.parametrize(
    ("fields", "output", "reason"),
    [
        ({}, [5], FINISHED.NOT_FINISHED),
        ({"end_id": 5}, [1, 5], FINISHED.END_ID),
        ({"stop_token_ids": [4, 5]}, [5], FINISHED.END_ID),
        ({"stop_words": [[1, 2]]}, [0, 1, 2], FINISHED.STOP_WORDS),
        ({"stop_words": [[1, 2]]}, [1, 0, 2], FINISHED.NOT_FINISHED),
        ({"stop_words": [[9, 1, 2]]}, [1, 2], FINISHED.NOT_FINISHED),
        (
            {"stop_words": [[1, 2]], "sampling_config": _core.SamplingConfig(min_tokens=3)},
            [1, 2],
            FINISHED.NOT_FINISHED,
        ),
        ({"stop_words": [[1, 2]], "end_id": 2}, [1, 2], FINISHED.END_ID),
        ({"max_tokens": 2}, [1, 1], FINISHED.LENGTH),
        ({"max_tokens": 2, "stop_words": [[1, 1]]}, [1, 1], FINISHED.STOP_WORDS),
    ],
)
def test_a_sequence_ends_for_the_first_reason_that_holds(
    fields: dict[str, Any], output: list[int], reason: _core.FinishReason
) -> None:
    request = _core.Request(input_token_ids=[1, 2], **fields)
    assert _test_executor.finish_reason(request, output) == reason
