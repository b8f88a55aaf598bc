"""Increments of one request on their way from the dispatcher thread to a waiting thread or task."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from trtc.runtime.outputs import Increment


class IncrementQueue:
    """A reader takes all that has arrived at once, so a slow one holds back nobody and nothing piles up."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget everything, locks that others hold included: for the child of a fork."""
        self._increments: list[Increment] = []
        self._complete = False  # the final increment has been put
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def put(self, increment: Increment) -> None:
        with self._changed:
            self._increments.append(increment)
            self._complete |= increment.is_final
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for loop, waiter in waiters:
            with contextlib.suppress(RuntimeError):  # its loop is closed, so nobody waits any more
                loop.call_soon_threadsafe(_wake, waiter)

    def take(self, timeout: float | None = None) -> list[Increment]:
        """At least one increment; none only after the final one. Raises TimeoutError after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._increments or self._complete, timeout):
                raise TimeoutError(f"no token within {timeout} s")
            return self._take_all()

    async def take_async(self) -> list[Increment]:
        while True:
            with self._changed:
                if self._increments or self._complete:
                    return self._take_all()
                loop = asyncio.get_running_loop()
                waiter = loop.create_future()
                self._waiters.append((loop, waiter))
            await waiter

    def _take_all(self) -> list[Increment]:
        increments, self._increments = self._increments, []
        return increments


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
