"""The scheduler's plans: limits kept, decoding first, first come first served."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trtc._test_executor import RunningSequence, SchedulerLimits, WaitingRequest, plan_step


def plan(
    running: list[dict[str, Any]] | None = None,
    waiting: list[dict[str, Any]] | None = None,
    *,
    slots_used: int | None = None,
    available_blocks: int = 1000,
    max_batch_size: int = 4,
    max_num_tokens: int = 8,
    max_logit_rows: int = 8,
    chunked_prefill: bool = True,
) -> dict[str, Any]:
    running, waiting = running or [], waiting or []
    return plan_step(
        running=[RunningSequence(**sequence) for sequence in running],
        waiting=[WaitingRequest(**request) for request in waiting],
        slots_used=len(running) if slots_used is None else slots_used,
        available_blocks=available_blocks,
        limits=SchedulerLimits(
            max_batch_size=max_batch_size,
            max_num_tokens=max_num_tokens,
            max_logit_rows=max_logit_rows,
            chunked_prefill=chunked_prefill,
        ),
    )


def decoding(length: int) -> dict[str, Any]:
    return {"length": length, "computed": length - 1, "decoding": True}


def test_decode_rows_come_before_prompts_whatever_the_order_of_arrival() -> None:
    result = plan([{"length": 20, "computed": 4}, decoding(7), decoding(9)])
    assert result["chunks"] == [(1, 6, 1, "last"), (2, 8, 1, "last"), (0, 4, 6, "none")]
    assert (result["generation_tokens"], result["context_tokens"]) == (2, 6)


def test_a_long_prompt_is_cut_to_the_rows_that_are_left() -> None:
    assert plan(waiting=[{"length": 20}])["chunks"] == [(0, 0, 8, "none")]


def test_the_last_chunk_of_a_prompt_asks_for_its_last_logits() -> None:
    assert plan([{"length": 20, "computed": 15}])["chunks"] == [(0, 15, 5, "last")]


def test_a_prompt_starts_after_its_cached_prefix() -> None:
    assert plan(waiting=[{"length": 12, "reused": 8}])["chunks"] == [(0, 8, 4, "last")]


def test_requests_start_in_order_while_rows_are_left() -> None:
    result = plan(waiting=[{"length": 3}, {"length": 4}, {"length": 5}, {"length": 2}])
    assert result["admitted"] == 3
    assert result["chunks"] == [(0, 0, 3, "last"), (1, 0, 4, "last"), (2, 0, 1, "none")]


def test_a_request_waits_until_its_worst_case_blocks_fit_and_nothing_overtakes_it() -> None:
    waiting = [{"length": 2, "blocks_needed": 5}, {"length": 2, "blocks_needed": 1}]
    assert plan(waiting=waiting, available_blocks=4)["admitted"] == 0
    assert plan(waiting=waiting, available_blocks=5)["admitted"] == 1
    assert plan(waiting=waiting, available_blocks=6)["admitted"] == 2


def test_a_request_with_several_sequences_waits_for_that_many_slots() -> None:
    waiting = [{"length": 2, "sequences": 3}]
    assert plan([decoding(5), decoding(5)], waiting)["admitted"] == 0
    assert plan([decoding(5)], waiting)["admitted"] == 1


def test_without_chunked_prefill_a_prompt_runs_whole_or_waits() -> None:
    running = [decoding(5), decoding(6)]
    assert plan(running, [{"length": 7}], chunked_prefill=False)["admitted"] == 0
    assert plan(running, [{"length": 6}], chunked_prefill=False)["chunks"][-1] == (2, 0, 6, "last")


def test_prompt_logits_are_cut_to_the_logit_rows_that_are_left() -> None:
    waiting = [{"length": 7, "all_logits": True}]
    assert plan([decoding(5)], waiting, max_logit_rows=4)["chunks"][-1] == (1, 0, 3, "all")


def test_a_prompt_stops_short_of_its_last_row_when_no_logit_row_is_left() -> None:
    running = [{"length": 9, "computed": 0, "all_logits": True}, {"length": 3, "computed": 0}]
    assert plan(running, max_logit_rows=4)["chunks"] == [(0, 0, 4, "all"), (1, 0, 2, "none")]


@st.composite
def running_sequences(draw: st.DrawFn) -> dict[str, Any]:
    length = draw(st.integers(1, 20))
    if draw(st.booleans()) and length > 1:
        return decoding(length)
    return {"length": length, "computed": draw(st.integers(0, length - 1)), "all_logits": draw(st.booleans())}


@st.composite
def waiting_requests(draw: st.DrawFn) -> dict[str, Any]:
    length = draw(st.integers(1, 20))
    return {
        "length": length,
        "reused": draw(st.integers(0, length - 1)),
        "sequences": draw(st.integers(1, 3)),
        "blocks_needed": draw(st.integers(0, 9)),
        "all_logits": draw(st.booleans()),
    }


@given(
    running=st.lists(running_sequences(), max_size=4),
    waiting=st.lists(waiting_requests(), max_size=5),
    available_blocks=st.integers(0, 20),
    max_num_tokens=st.integers(4, 24),
    max_logit_rows=st.integers(4, 24),
    chunked_prefill=st.booleans(),
)
def test_every_plan_keeps_the_limits_and_makes_progress(
    running: list[dict[str, Any]],
    waiting: list[dict[str, Any]],
    available_blocks: int,
    max_num_tokens: int,
    max_logit_rows: int,
    chunked_prefill: bool,
) -> None:
    limits: dict[str, Any] = {
        "available_blocks": available_blocks,
        "max_batch_size": 4,
        "max_num_tokens": max_num_tokens,
        "max_logit_rows": max_logit_rows,
        "chunked_prefill": chunked_prefill,
    }
    result = plan(running, waiting, **limits)
    assert plan(running, waiting, **limits) == result  # nothing was changed by planning

    chunks = result["chunks"]
    admitted = waiting[: result["admitted"]]
    sequences = [*running, *({**request, "computed": request["reused"]} for request in admitted)]
    assert sum(count for _, _, count, _ in chunks) == result["context_tokens"] + result["generation_tokens"]
    assert sum(count for _, _, count, _ in chunks) <= max_num_tokens
    assert sum({"none": 0, "last": 1, "all": count}[logits] for _, _, count, logits in chunks) <= max_logit_rows
    assert len(running) + sum(request["sequences"] for request in admitted) <= 4
    assert sum(request["blocks_needed"] for request in admitted) <= available_blocks

    indices = [index for index, *_ in chunks]
    assert len(set(indices)) == len(indices)
    assert {i for i, sequence in enumerate(running) if sequence.get("decoding")} <= set(indices)
    assert set(range(len(running), len(sequences))) <= set(indices)
    for index, begin, count, logits in chunks:
        sequence = sequences[index]
        assert begin == sequence["computed"] and 1 <= count <= sequence["length"] - begin
        ends = begin + count == sequence["length"]
        assert logits == ("all" if sequence.get("all_logits") else "last" if ends else "none")
        assert chunked_prefill or ends
    if running and chunked_prefill:
        assert chunks
