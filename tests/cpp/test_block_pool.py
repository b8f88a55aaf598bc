"""The block pool counts owners and never hands out an owned block."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trtc._test_executor import BlockPool
from trtc.errors import ExecutorError


class BlockPoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(5)
        self.owners: dict[int, int] = {}

    @precondition(lambda self: len(self.owners) < 5)
    @rule()
    def allocate(self) -> None:
        block = self.pool.allocate()
        assert block not in self.owners
        self.owners[block] = 1

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def add_ref(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.owners)))
        self.pool.add_ref(block)
        self.owners[block] += 1

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.owners)))
        self.owners[block] -= 1
        assert self.pool.release(block) == self.owners[block]
        if self.owners[block] == 0:
            del self.owners[block]

    @invariant()
    def counts_agree(self) -> None:
        assert [self.pool.ref_count(block) for block in range(5)] == [self.owners.get(b, 0) for b in range(5)]
        assert self.pool.num_free == 5 - len(self.owners)


TestBlockPool = BlockPoolMachine.TestCase


def test_an_empty_pool_says_so() -> None:
    pool = BlockPool(1)
    pool.allocate()
    with pytest.raises(ExecutorError, match="no free KV cache block: all 1 have owners"):
        pool.allocate()


def test_a_block_without_owner_cannot_be_released_or_shared() -> None:
    pool = BlockPool(2)
    with pytest.raises(ExecutorError, match="block 0 has no owner"):
        pool.release(0)
    with pytest.raises(ExecutorError, match="block 1 has no owner"):
        pool.add_ref(1)
