"""Where each activation buffer lies in the arena: buffers whose lifetimes do not meet may share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtc.engine.format import align


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``bytes`` that is live from call ``first`` to call ``last``, both included."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets by buffer, the arena's size, and what it would be if no bytes were shared."""

    offsets: tuple[int, ...]
    arena_bytes: int
    bytes_without_reuse: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Greedy by size: the largest buffer first, each at the lowest aligned offset that is free while it lives.

    Pisarchyk and Lee, https://arxiv.org/abs/2001.03288, section 4.2.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].bytes, lifetimes[i].first))
    for index in order:
        lifetime = lifetimes[index]
        size = align(lifetime.bytes)
        offset = 0
        for other in sorted((o for o in placed if lifetimes[o].meets(lifetime)), key=lambda o: offsets[o]):
            if offset + size <= offsets[other]:
                break
            offset = max(offset, offsets[other] + align(lifetimes[other].bytes))
        offsets[index] = offset
        placed.append(index)
    arena = max((o + align(life.bytes) for o, life in zip(offsets, lifetimes, strict=True)), default=0)
    return MemoryPlan(tuple(offsets), arena, sum(align(life.bytes) for life in lifetimes))
