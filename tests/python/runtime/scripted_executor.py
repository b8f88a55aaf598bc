"""Stands in for ``_core.Executor``: tests say which responses come, and see what was cancelled."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from trtc.errors import ExecutorError


@dataclass
class TokenLogProbs:
    ids: list[int]
    values: list[float]
    chosen_rank: int = 1


def response(request_id: int, tokens: bytes | list[int] = b"", finish: str = "NOT_FINISHED", **more: Any) -> Any:
    """One ``_core.Response``; bytes are the byte-level test tokenizer's tokens. ``finish`` other than NOT_FINISHED ends
    the sequence, and the request unless ``is_final`` says otherwise."""
    ended = finish != "NOT_FINISHED"
    result = {
        "sequence_index": 0,
        "is_sequence_final": ended,
        "is_final": ended,
        "output_token_ids": list(tokens),
        "log_probs": [],
        "prompt_log_probs": [],
        "context_logits": None,
        "generation_logits": None,
        "finish_reason": SimpleNamespace(name=finish),
    }
    error = more.pop("error", None)
    return SimpleNamespace(request_id=request_id, error=error, result=SimpleNamespace(**{**result, **more}))


@dataclass
class ScriptedExecutor:
    requests: list[Any] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    _responses: queue.Queue[list[Any]] = field(default_factory=queue.Queue)

    def enqueue_request(self, request: Any) -> int:
        self.requests.append(request)
        return len(self.requests)

    def await_responses(self) -> list[Any]:
        responses = self._responses.get()
        if responses == ["crash"]:
            raise ExecutorError("worker died")
        return responses

    def send(self, *responses: Any) -> None:
        self._responses.put(list(responses))

    def crash(self) -> None:
        self._responses.put(["crash"])

    def cancel_request(self, request_id: int) -> None:
        self.cancelled.append(request_id)

    def shutdown(self) -> None:
        self._responses.put([])
