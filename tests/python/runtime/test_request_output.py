"""RequestOutput over the real dispatcher and a scripted executor: the ways to wait, and the ways to leave."""

import asyncio
import gc
import threading

import pytest

from tests.python.runtime.scripted_executor import ScriptedExecutor, response
from trtc import ExecutorError, SamplingParams
from trtc.runtime.dispatcher import Dispatcher
from trtc.runtime.request_output import RequestOutput
from trtc.runtime.response_decoder import ResponseDecoder


@pytest.fixture
def executor():
    return ScriptedExecutor()


@pytest.fixture
def dispatcher(executor):
    dispatcher = Dispatcher(executor)
    yield dispatcher
    dispatcher.shutdown()


@pytest.fixture
def start(dispatcher, byte_tokenizer):
    def start(streaming=True, **params):
        params = SamplingParams(**params)
        request_id, queue = dispatcher.submit(None, ResponseDecoder(params, byte_tokenizer))
        return RequestOutput(request_id, "prompt", [1, 2], params.n, streaming, queue, dispatcher.abort)

    return start


def test_result_waits_for_the_whole_output(start, executor):
    request = start()
    executor.send(response(1, b"he"))
    executor.send(response(1, b"y", "LENGTH"))
    assert request.result() is request
    assert (request.outputs[0].text, request.outputs[0].finish_reason, request.finished) == ("hey", "length", True)
    assert request.result().outputs[0].text == "hey"


def test_each_step_of_an_iteration_shows_what_is_new(start, executor):
    request, steps = start(), iter([b"e", b"y"])
    executor.send(response(1, b"h"))
    seen = []
    for output in request:
        seen.append((output.outputs[0].text, output.outputs[0].text_diff, output.outputs[0].token_ids_diff))
        if (token := next(steps, None)) is not None:
            executor.send(response(1, token, "LENGTH" if token == b"y" else "NOT_FINISHED"))
    assert seen == [("h", "h", [104]), ("he", "e", [101]), ("hey", "y", [121])]


def test_a_slow_reader_gets_what_piled_up_in_one_step(start, executor, dispatcher):
    request = start()
    executor.send(*[response(1, b"x") for _ in range(9)], response(1, b"y", "LENGTH"))
    dispatcher.shutdown()
    assert [output.outputs[0].text_diff for output in request] == ["xxxxxxxxxy"]


def test_without_streaming_an_iteration_has_one_step(start, executor):
    request = start(streaming=False)
    executor.send(response(1, b"a"))
    executor.send(response(1, b"b", "LENGTH"))
    assert [(output.outputs[0].text, output.outputs[0].text_diff) for output in request] == [("ab", "ab")]


def test_async_iteration_and_await_give_the_same_text(start, executor):
    async def read():
        first, second = start(), start()
        executor.send(response(1, b"a"), response(2, b"c"))
        executor.send(response(1, b"b", "LENGTH"), response(2, b"d", "LENGTH"))
        text = "".join([output.outputs[0].text_diff async for output in first])
        return text, (await second).outputs[0].text

    assert asyncio.run(read()) == ("ab", "cd")


def test_many_tasks_wait_at_once(start, executor):
    async def read():
        requests = [start() for _ in range(20)]
        waiting = [asyncio.create_task(request.aresult()) for request in requests]
        await asyncio.sleep(0)
        for request in reversed(requests):
            executor.send(response(request.request_id, b"%d" % request.request_id, "LENGTH"))
        return [(await task).outputs[0].text for task in waiting]

    assert asyncio.run(read()) == [str(index) for index in range(1, 21)]


def test_leaving_an_async_iteration_aborts_the_request(start, executor):
    async def read():
        executor.send(response(1, b"a"))
        async for _ in start():
            break
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(read())
    assert executor.cancelled == [1]


def test_a_cancelled_task_aborts_its_request(start, executor):
    async def read(request):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(request.aresult(), 0.01)

    request = start()
    asyncio.run(read(request))
    assert executor.cancelled == [1] and request.aborted()


def test_leaving_a_plain_iteration_aborts_the_request(start, executor):
    executor.send(response(1, b"a"))
    for _ in start():
        break
    gc.collect()
    assert executor.cancelled == [1]


def test_letting_go_of_a_request_aborts_it(start, executor):
    request = start()
    del request
    gc.collect()
    assert executor.cancelled == [1]


def test_an_aborted_request_still_ends(start, executor):
    request = start()
    request.abort()
    executor.send(response(1, b"", "CANCELLED"))
    assert request.result().outputs[0].finish_reason == "cancelled"
    request.abort()
    assert executor.cancelled == [1]


def test_a_timeout_leaves_the_request_running(start, executor):
    request = start()
    with pytest.raises(TimeoutError):
        request.result(timeout=0.01)
    executor.send(response(1, b"a", "LENGTH"))
    assert request.result().outputs[0].text == "a" and executor.cancelled == []


def test_a_stop_string_cancels_what_the_executor_still_computes(start, executor):
    request = start(stop=".")
    executor.send(response(1, b"a."), response(1, b"b"), response(1, b"", "CANCELLED"))
    assert request.result().outputs[0].text == "a"
    assert executor.cancelled == [1]


def test_an_error_response_is_raised_where_the_request_is_read(start, executor):
    failing, other = start(), start()
    executor.send(response(1, error="no memory for the KV cache"), response(2, b"a", "LENGTH"))
    with pytest.raises(ExecutorError, match="no memory for the KV cache"):
        failing.result()
    assert other.result().outputs[0].text == "a"


def test_shutdown_fails_pending_requests_and_refuses_new_ones(start, dispatcher):
    request = start()
    dispatcher.shutdown()
    with pytest.raises(ExecutorError, match="shut down before the request finished"):
        request.result()
    with pytest.raises(ExecutorError, match="make a new LLM"):
        start()
    dispatcher.shutdown()
    request.abort()


def test_a_crash_of_the_executor_reaches_every_request(start, executor):
    requests = [start(), start()]
    executor.crash()
    for request in requests:
        with pytest.raises(ExecutorError, match="the executor failed: worker died"):
            request.result()


def test_threads_may_submit_together(start, executor):
    requests, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: requests.append(start())))
        threads[-1].start()
    for thread in threads:
        thread.join()
    executor.send(*[response(request.request_id, b"ok", "LENGTH") for request in requests])
    assert [request.result().outputs[0].text for request in requests] == ["ok"] * 8


def test_outputs_of_one_request_are_kept_apart(start, executor):
    request = start(n=2, temperature=1.0)
    executor.send(response(1, b"a", sequence_index=0), response(1, b"b", sequence_index=1))
    executor.send(
        response(1, b"c", "LENGTH", sequence_index=1, is_final=False), response(1, b"d", "LENGTH", sequence_index=0)
    )
    request.result()
    assert [(output.index, output.text) for output in request.outputs] == [(0, "ad"), (1, "bc")]
