"""One thread that fetches the executor's responses and hands each to its request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trtc.errors import ExecutorError
from trtc.runtime.increment_queue import IncrementQueue
from trtc.runtime.response_decoder import ResponseDecoder

if TYPE_CHECKING:
    from trtc import _core


class Dispatcher:
    """Owns the executor: requests enter and leave through here."""

    def __init__(self, executor: _core.Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()  # over _pending; held while enqueueing, so no response comes before its entry
        self._pending: dict[int, tuple[ResponseDecoder, IncrementQueue]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._dispatch_all, name="trtc-dispatcher", daemon=True)
        self._thread.start()

    def submit(self, request: _core.Request, decoder: ResponseDecoder) -> tuple[int, IncrementQueue]:
        """Enqueue ``request``. Raises RequestError when the engine can never serve it, ExecutorError after shutdown."""
        queue = IncrementQueue()
        with self._lock:
            if self._closed:
                raise ExecutorError("the executor is shut down; make a new LLM")
            request_id = self._executor.enqueue_request(request)
            self._pending[request_id] = (decoder, queue)
        return request_id, queue

    def abort(self, request_id: int) -> None:
        """The request ends with finish_reason 'cancelled'; finished and unknown ones are left alone."""
        if not self._closed:
            self._executor.cancel_request(request_id)

    def shutdown(self) -> None:
        """Cancel what is pending and stop. May be called again."""
        with self._lock:
            self._closed = True
        self._executor.shutdown()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _dispatch_all(self) -> None:
        error: Exception = ExecutorError("the executor was shut down before the request finished")
        try:
            while responses := self._executor.await_responses():
                for response in responses:
                    self._dispatch(response)
        except Exception as failure:  # the requests must hear of it, whatever it was
            error = ExecutorError(f"the executor failed: {failure}")
            error.__cause__ = failure
        with self._lock:
            self._closed = True
            pending, self._pending = self._pending, {}
        for decoder, queue in pending.values():
            queue.put(decoder.fail(error))

    def _dispatch(self, response: _core.Response) -> None:
        with self._lock:
            entry = self._pending.get(response.request_id)
        if entry is None:  # it ended at a stop string; these are tokens past it
            return
        decoder, queue = entry
        increment = decoder.decode(response)
        if increment is None:
            return
        if increment.is_final:
            with self._lock:
                del self._pending[response.request_id]
            if not response.result.is_final:
                self._executor.cancel_request(response.request_id)
        queue.put(increment)
