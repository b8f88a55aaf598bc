"""One thread that fetches the executor's responses and hands each to its request."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING

from trtc.errors import ExecutorError
from trtc.runtime.increment_queue import IncrementQueue
from trtc.runtime.response_decoder import ResponseDecoder

if TYPE_CHECKING:
    from trtc import _core


_SHUT_DOWN = "the executor is shut down; make a new LLM"
_FORKED = "this LLM belongs to the process that made it, and its threads do not follow a fork; make a new LLM here"
_LIVE: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


class Dispatcher:
    """Owns the executor: requests enter and leave through here."""

    def __init__(self, executor: _core.Executor) -> None:
        self._executor = executor
        # Over _pending; held while enqueueing, so no response comes before its entry. Reentrant, because collecting
        # garbage may abort a request at any moment.
        self._lock = threading.RLock()
        self._pending: dict[int, tuple[ResponseDecoder, IncrementQueue]] = {}
        self._closed: str | None = None  # why no more requests are taken
        self._forked = False
        _LIVE.add(self)
        self._thread = threading.Thread(target=self._dispatch_all, name="trtc-dispatcher", daemon=True)
        self._thread.start()

    def submit(self, request: _core.Request, decoder: ResponseDecoder) -> tuple[int, IncrementQueue]:
        """Enqueue ``request``. Raises RequestError when the engine can never serve it, ExecutorError after shutdown."""
        queue = IncrementQueue()
        with self._lock:
            if self._closed is not None:
                raise ExecutorError(self._closed)
            request_id = self._executor.enqueue_request(request)
            self._pending[request_id] = (decoder, queue)
        return request_id, queue

    def abort(self, request_id: int) -> None:
        """The request ends with finish_reason 'cancelled'; finished and unknown ones are left alone."""
        with self._lock:
            pending = request_id in self._pending
        if pending:
            self._executor.cancel_request(request_id)

    def iteration_stats(self) -> list[_core.IterationStats]:
        """Of the iterations since the last call. Raises ExecutorError in the child of a fork."""
        if self._forked:
            raise ExecutorError(_FORKED)
        return self._executor.get_latest_iteration_stats()

    def shutdown(self) -> None:
        """Cancel what is pending and stop. May be called again."""
        if self._forked:
            return
        with self._lock:
            self._closed = self._closed or _SHUT_DOWN
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
            self._closed = self._closed or _SHUT_DOWN
            pending, self._pending = self._pending, {}
        for decoder, queue in pending.values():
            queue.put(decoder.fail(error))

    def after_fork(self) -> None:
        """In the child, where the executor's threads do not exist and its locks may be held for ever: refuse requests,
        fail those that were pending, and never touch the executor again, not even to destroy it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._executor))
        self._lock, self._forked, self._closed = threading.RLock(), True, _FORKED
        pending, self._pending = self._pending, {}
        for decoder, queue in pending.values():
            queue.renew()
            queue.put(decoder.fail(ExecutorError(_FORKED)))

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


def _after_fork() -> None:
    for dispatcher in list(_LIVE):
        dispatcher.after_fork()


os.register_at_fork(after_in_child=_after_fork)
