"""The executor over the scripted backend: outputs, streaming, cancelling, sharing, shutting down."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cpp.scripted_model import collect, logits_after, plain, run_alone
from trtc import _core
from trtc._test_executor import ScriptControl, ScriptedModel, scripted_executor
from trtc.errors import ExecutorError, RequestError

CANCELLED = _core.FinishReason.CANCELLED
TIMEOUT_MS = 60_000  # of waits that are expected to succeed at once


def request(prompt: list[int], max_tokens: int = 6, **fields: Any) -> _core.Request:
    return _core.Request(input_token_ids=prompt, max_tokens=max_tokens, **fields)


def final_responses(executor: _core.Executor, request_id: int) -> list[_core.Response]:
    responses: list[_core.Response] = []
    while not (responses and responses[-1].result.is_final):
        got = executor.await_responses(TIMEOUT_MS, request_id)
        assert got, "no response came"
        responses += got
    return responses


@pytest.fixture
def executor() -> Iterator[_core.Executor]:
    with scripted_executor(ScriptedModel()) as executor:
        yield executor


class Held:
    """An executor whose steps wait for permits."""

    def __init__(self, model: ScriptedModel | None = None, **config: Any) -> None:
        self.control = ScriptControl()
        self.control.hold()
        self.executor = scripted_executor(model or ScriptedModel(), _core.ExecutorConfig(**config), self.control)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.open()
        self.executor.shutdown()


def test_one_request_gives_its_tokens(executor: _core.Executor) -> None:
    asked = request([1, 2, 3])
    (response,) = final_responses(executor, executor.enqueue_request(asked))
    (expected,) = run_alone(asked)
    assert response.result.output_token_ids == expected.tokens
    assert response.result.finish_reason == _core.FinishReason.LENGTH
    assert response.result.is_sequence_final and not response.has_error


def test_streaming_gives_the_same_tokens_one_by_one(executor: _core.Executor) -> None:
    asked = request([1, 2, 3], streaming=True)
    responses = final_responses(executor, executor.enqueue_request(asked))
    assert [len(response.result.output_token_ids) for response in responses] == [1] * 6
    assert [r.result.output_token_ids[0] for r in responses] == run_alone(asked)[0].tokens


def test_the_prompt_comes_first_when_it_is_not_excluded(executor: _core.Executor) -> None:
    config = _core.OutputConfig(exclude_input_from_output=False)
    for streaming in (False, True):
        asked = request([1, 2, 3], streaming=streaming, output_config=config)
        collected = collect(final_responses(executor, request_id := executor.enqueue_request(asked)))
        assert collected[request_id].tokens[0] == [1, 2, 3, *run_alone(asked)[0].tokens]


def test_many_requests_at_once_each_give_what_they_give_alone(executor: _core.Executor) -> None:
    asked = [request([i % 5] * (1 + i % 13), 1 + i % 9, streaming=i % 2 == 0) for i in range(40)]
    ids = executor.enqueue_requests(asked)
    responses: list[_core.Response] = []
    while sum(response.result.is_final for response in responses) < len(asked):
        responses += executor.await_responses(TIMEOUT_MS)
    collected = collect(responses)
    for request_id, one in zip(ids, asked, strict=True):
        assert collected[request_id].tokens[0] == run_alone(one)[0].tokens


@pytest.mark.parametrize("chunk", [1, 3, 7, 16])
def test_the_chunk_size_changes_nothing(chunk: int) -> None:
    scheduler = _core.SchedulerConfig(max_num_tokens=chunk)
    asked = request(list(range(1, 24)))
    with scripted_executor(ScriptedModel(), _core.ExecutorConfig(scheduler_config=scheduler)) as executor:
        (response,) = final_responses(executor, executor.enqueue_request(asked))
    assert response.result.output_token_ids == run_alone(asked)[0].tokens


def test_several_sequences_share_the_prompt_and_differ_by_seed_stream(executor: _core.Executor) -> None:
    asked = request([1, 2, 3, 4, 5], 8, sampling_config=_core.SamplingConfig(num_return_sequences=3, temperature=1.0))
    request_id = executor.enqueue_request(asked)
    collected = collect(final_responses(executor, request_id))[request_id]
    expected = run_alone(asked)
    assert [collected.tokens[i] for i in range(3)] == [output.tokens for output in expected]
    assert len({tuple(output.tokens) for output in expected}) == 3


def test_a_cached_prefix_is_reused_and_changes_nothing(executor: _core.Executor) -> None:
    asked = request([*range(1, 14)])
    cold = final_responses(executor, executor.enqueue_request(asked))[-1].result
    warm = final_responses(executor, executor.enqueue_request(asked))[-1].result
    assert (cold.reused_tokens, warm.reused_tokens) == (0, 12)
    assert warm.output_token_ids == cold.output_token_ids
    assert executor.get_kv_cache_stats().reused_blocks == 3


def test_a_prompt_of_whole_cached_blocks_recomputes_the_last_one(executor: _core.Executor) -> None:
    asked = request([*range(1, 13)])
    for expected in (0, 8):
        result = final_responses(executor, executor.enqueue_request(asked))[-1].result
        assert result.reused_tokens == expected
        assert result.output_token_ids == run_alone(asked)[0].tokens


def test_another_salt_finds_nothing(executor: _core.Executor) -> None:
    for salt in ("a", "b", None):
        asked = request([*range(1, 14)], cache_salt=salt)
        assert final_responses(executor, executor.enqueue_request(asked))[-1].result.reused_tokens == 0
    again = request([*range(1, 14)], cache_salt="a")
    assert final_responses(executor, executor.enqueue_request(again))[-1].result.reused_tokens == 12


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_prompt_and_generation_logits_are_those_of_the_model(rows: int) -> None:
    config = _core.OutputConfig(
        return_context_logits=True, return_generation_logits=True, prompt_log_probs=2, log_probs=0
    )
    prompt = [5, 6, 7, 8, 9, 10, 11]
    model = ScriptedModel(max_logit_rows=rows, max_batch_size=min(rows, 4))
    with scripted_executor(model) as executor:
        (response,) = final_responses(executor, executor.enqueue_request(request(prompt, 3, output_config=config)))
    result = response.result
    tokens = [*prompt, *result.output_token_ids]
    rows_of = np.stack([logits_after(tokens[: i + 1]) for i in range(len(tokens) - 1)])
    np.testing.assert_array_equal(result.context_logits, rows_of[: len(prompt)])
    np.testing.assert_array_equal(result.generation_logits, rows_of[len(prompt) - 1 :])
    log_softmax = rows_of - np.log(np.exp(rows_of.astype(np.float64)).sum(-1, keepdims=True))
    assert len(result.prompt_log_probs) == len(prompt) - 1
    for i, entry in enumerate(result.prompt_log_probs):
        assert entry.ids == [prompt[i + 1], *np.argsort(-rows_of[i])[:2]]
        np.testing.assert_allclose(entry.values, log_softmax[i, entry.ids], rtol=1e-5)
    assert result.cum_log_prob == pytest.approx(sum(plain(entry)[1][0] for entry in result.log_probs), rel=1e-6)


def test_logits_that_were_not_asked_for_are_none(executor: _core.Executor) -> None:
    result = final_responses(executor, executor.enqueue_request(request([1])))[-1].result
    assert result.context_logits is None and result.generation_logits is None


def test_broken_logits_end_their_own_request_only() -> None:
    with scripted_executor(ScriptedModel(nan_after_token=30)) as executor:
        bad, good = executor.enqueue_requests([request([1, 30]), request([1, 2])])
        (response,) = final_responses(executor, bad)
        assert "NaN or infinite" in response.error
        assert final_responses(executor, good)[-1].result.output_token_ids == run_alone(request([1, 2]))[0].tokens


def test_a_cancelled_request_frees_its_blocks_within_a_step() -> None:
    with Held() as held:
        first = held.executor.enqueue_request(request([1, 2, 3, 4, 5], 50))
        assert held.control.wait_started(1)
        held.executor.cancel_request(first)
        held.control.allow(1)
        (response,) = held.executor.await_responses(TIMEOUT_MS, first)
        assert response.result.finish_reason == CANCELLED and response.result.is_final
        assert held.executor.get_kv_cache_stats().used_num_blocks == 0
        assert held.control.runs == 1


def test_a_queued_request_can_be_cancelled() -> None:
    with Held(scheduler_config=_core.SchedulerConfig(max_batch_size=1)) as held:
        _, queued = held.executor.enqueue_requests([request([1]), request([2])])
        assert held.control.wait_started(1)
        held.executor.cancel_request(queued)
        held.control.allow(1)
        (response,) = held.executor.await_responses(TIMEOUT_MS, queued)
        assert (response.result.finish_reason, response.result.output_token_ids) == (CANCELLED, [])


def test_cancelling_what_is_unknown_or_finished_does_nothing(executor: _core.Executor) -> None:
    executor.cancel_request(99)
    request_id = executor.enqueue_request(request([1]))
    final_responses(executor, request_id)
    executor.cancel_request(request_id)
    final_responses(executor, executor.enqueue_request(request([1])))


def test_a_failing_backend_fails_every_request_and_later_ones_with_its_cause() -> None:
    control = ScriptControl()
    control.hold()
    model = ScriptedModel(fail_at_run=2)
    executor = scripted_executor(model, _core.ExecutorConfig(), control)
    asked = [request([i]) for i in range(10)]  # more than run at a time
    ids = executor.enqueue_requests(asked)
    control.open()
    for request_id in ids:
        assert "scripted backend failure" in final_responses(executor, request_id)[-1].error
    with pytest.raises(ExecutorError, match="scripted backend failure"):
        executor.enqueue_request(asked[0])
    assert executor.get_kv_cache_stats().used_num_blocks == 0
    executor.shutdown()


def test_a_backend_without_memory_fails_the_executor_at_once() -> None:
    with pytest.raises(ExecutorError, match="scripted allocation failure"):
        scripted_executor(ScriptedModel(fail_allocation=True))


def test_shutdown_cancels_what_is_pending_and_wakes_who_waits() -> None:
    with Held() as held:
        ids = held.executor.enqueue_requests([request([i], 50, streaming=True) for i in range(8)])
        assert held.control.wait_started(1)
        got: list[_core.Response] = []

        def wait_for_all() -> None:
            while responses := held.executor.await_responses():
                got.extend(responses)

        waiting = threading.Thread(target=wait_for_all)
        stopping = threading.Thread(target=held.executor.shutdown)
        waiting.start()
        stopping.start()
        with pytest.raises(ExecutorError, match="shut down"):
            while True:  # until shutdown has begun; only then may the step end
                ids.append(held.executor.enqueue_request(request([1], 50)))
                time.sleep(0.001)
        held.control.open()
        stopping.join()
        waiting.join()
        collected = collect(got)
        assert collected.keys() == set(ids)
        assert all(one.finish_reasons == {0: CANCELLED} for one in collected.values())
        assert held.executor.await_responses() == []
        with pytest.raises(ExecutorError, match="shut down"):
            held.executor.enqueue_request(request([1]))
        held.executor.shutdown()


def test_responses_can_be_fetched_after_shutdown() -> None:
    executor = scripted_executor(ScriptedModel())
    request_id = executor.enqueue_request(request([1]))
    executor.shutdown()
    (response,) = executor.await_responses(None, request_id)
    assert response.result.is_final


def test_a_time_out_gives_nothing_and_the_request_goes_on() -> None:
    with Held() as held:
        request_id = held.executor.enqueue_request(request([1]))
        assert held.executor.await_responses(1, request_id) == []
        assert held.executor.await_responses(0) == []
        assert held.executor.await_responses(-1, request_id) == held.executor.await_responses(-(2**63)) == []
        held.control.open()
        assert final_responses(held.executor, request_id)


FORK = """
import os
from tests.cpp.test_executor import Held, request
from trtc.errors import ExecutorError
held = Held()
request_id = held.executor.enqueue_request(request([1]))
assert held.control.wait_started(1)
child = os.fork()
if child == 0:
    executor = held.executor
    for call in (
        lambda: executor.enqueue_request(request([1])),
        lambda: executor.await_responses(None, request_id),
        executor.get_latest_iteration_stats,
        executor.get_kv_cache_stats,
    ):
        try:
            call()
        except ExecutorError as error:
            print(error, flush=True)
    executor.cancel_request(request_id)
    executor.shutdown()
    del executor, held
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
held.control.open()
print(len(held.executor.await_responses(None, request_id)))
"""


def test_a_forked_child_is_told_instead_of_hanging() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, cwd=root)
    assert done.returncode == 0, done.stderr
    told = "the executor was made before this process forked; load the model in the child process"
    assert done.stdout.splitlines() == [told] * 4 + ["1"]


def test_a_fetched_request_is_forgotten(executor: _core.Executor) -> None:
    request_id = executor.enqueue_request(request([1]))
    assert final_responses(executor, request_id)
    assert executor.get_num_responses_ready() == 0
    for unknown in (request_id, 12345):
        with pytest.raises(RequestError, match=f"request id {unknown} is unknown"):
            executor.await_responses(TIMEOUT_MS, unknown)


def test_ready_responses_are_counted() -> None:
    executor = scripted_executor(ScriptedModel())
    ids = executor.enqueue_requests([request([1], 3, streaming=True), request([2], 3)])
    while executor.get_num_responses_ready() < 4:
        time.sleep(0.001)
    assert [executor.get_num_responses_ready(i) for i in ids] == [3, 1]
    executor.shutdown()


def test_a_full_queue_refuses_more() -> None:
    with Held(max_queue_size=3, scheduler_config=_core.SchedulerConfig(max_batch_size=1)) as held:
        held.executor.enqueue_request(request([1]))
        assert held.control.wait_started(1)
        with pytest.raises(ExecutorError, match=r"queue is full: \d requests wait and max_queue_size is 3"):
            held.executor.enqueue_requests([request([1])] * 4)


def test_iteration_stats_tell_each_step_and_are_bounded() -> None:
    with Held(iter_stats_max_iterations=3) as held:
        request_id = held.executor.enqueue_request(request([1, 2, 3], 5))
        held.control.open()
        final_responses(held.executor, request_id)
        stats = held.executor.get_latest_iteration_stats()
        assert [(s.iter, s.num_context_tokens, s.num_generation_tokens) for s in stats] == [
            (2, 0, 1),
            (3, 0, 1),
            (4, 0, 1),
        ]
        assert [s.num_completed_requests for s in stats] == [0, 0, 1]
        assert all(s.num_active_requests == 1 and s.num_queued_requests == 0 for s in stats)
        assert held.executor.get_latest_iteration_stats() == []


def test_many_threads_enqueue_cancel_and_wait_at_once(executor: _core.Executor) -> None:
    failures: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for i in range(15):
                asked = request([number % 3, i % 4, 1], 1 + i % 6, streaming=i % 2 == 0)
                request_id = executor.enqueue_request(asked)
                if i % 5 == 4:
                    executor.cancel_request(request_id)
                got = collect(final_responses(executor, request_id))[request_id]
                expected = run_alone(asked)[0].tokens
                assert got.tokens[0] == expected[: len(got.tokens[0])]
                assert i % 5 == 4 or got.tokens[0] == expected
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert executor.get_kv_cache_stats().used_num_blocks == 0
