"""``RequestOutput``: a request on its way, to be iterated or waited for. Fields follow TensorRT-LLM's LLM API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from trtc.runtime.increment_queue import IncrementQueue
from trtc.runtime.outputs import CompletionOutput, Increment, LogprobResults

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class RequestOutput:
    """One request and its outputs so far. For one reader: a thread (``for``, ``result``) or a task (``async for``,
    ``await``).

    Each step of an iteration updates ``outputs`` in place and yields this object; what is new is in the ``*_diff``
    properties. An iteration that is left early, a task that is cancelled while it waits, or letting go of this object
    aborts the request.

    ``prompt`` is the text (None for token ids; the rendered template for a chat). ``context_logits`` is float32
    [prompt tokens, vocab].
    """

    def __init__(
        self,
        request_id: int,
        prompt: str | None,
        prompt_token_ids: list[int],
        n: int,
        streaming: bool,
        queue: IncrementQueue,
        abort: Callable[[int], None],
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput(index) for index in range(n)]
        self.context_logits: npt.NDArray[np.float32] | None = None
        self.finished = False
        self._streaming = streaming
        self._queue = queue
        self._abort = abort
        self._aborted = False
        self._error: Exception | None = None

    @property
    def prompt_logprobs(self) -> LogprobResults:
        """Of prompt tokens 1 and up: nothing predicts the first one."""
        return self.outputs[0].prompt_logprobs

    def result(self, timeout: float | None = None) -> RequestOutput:
        """Wait until the request is finished. Raises ExecutorError when it failed, TimeoutError when no token came for
        ``timeout`` seconds (the request goes on)."""
        while not self.finished:
            self._apply(self._queue.take(timeout))
        return self._checked()

    async def aresult(self) -> RequestOutput:
        """As ``result``, without blocking the event loop."""
        try:
            while not self.finished:
                self._apply(await self._queue.take_async())
        finally:
            self._abort_unfinished()
        return self._checked()

    def __await__(self) -> Generator[Any, None, RequestOutput]:
        return self.aresult().__await__()

    def __iter__(self) -> Iterator[RequestOutput]:
        try:
            while not self.finished:
                self._apply(self._queue.take())
                if self._streaming or self.finished:
                    yield self._checked()
        finally:
            self._abort_unfinished()

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        try:
            while not self.finished:
                self._apply(await self._queue.take_async())
                if self._streaming or self.finished:
                    yield self._checked()
        finally:
            self._abort_unfinished()

    def abort(self) -> None:
        """Stop the request; its outputs end with finish_reason 'cancelled'. Does nothing to a finished one."""
        if not self.finished:
            self._aborted = True
            self._abort(self.request_id)

    def aborted(self) -> bool:
        return self._aborted

    def __del__(self) -> None:
        """Nobody can read it any more."""
        self._abort_unfinished()

    def _abort_unfinished(self) -> None:
        if not self.finished and not self._aborted:
            self.abort()

    def _apply(self, increments: list[Increment]) -> None:
        if self._streaming:
            for output in self.outputs:
                output.begin_step()
        for increment in increments:
            self.outputs[increment.sequence_index].extend(increment)
            if increment.context_logits is not None:
                self.context_logits = increment.context_logits
            self._error = self._error or increment.error
            self.finished |= increment.is_final

    def _checked(self) -> RequestOutput:
        if self._error is not None:
            raise self._error
        return self

    def __repr__(self) -> str:
        names = ("request_id", "prompt", "prompt_token_ids", "outputs", "finished")
        return f"RequestOutput({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
