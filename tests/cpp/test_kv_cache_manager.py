"""The cache manager: every reference has an owner, promises hold, shared blocks are never written."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trtc._test_executor import KvCacheManager, SequenceCache
from trtc.errors import ExecutorError

BLOCK = 3
BLOCKS = 12


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK)


class Running:
    """A sequence as the executor would run it."""

    def __init__(self, cache: SequenceCache, tokens: list[int], computed: int, limit: int) -> None:
        self.cache = cache
        self.tokens = tokens
        self.computed = computed
        self.limit = limit  # tokens it may reach


class KvCacheManagerMachine(RuleBasedStateMachine):
    reuse = True

    def __init__(self) -> None:
        super().__init__()
        self.manager = KvCacheManager(BLOCKS, BLOCK, self.reuse)
        self.running: list[Running] = []

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=9), more=st.integers(0, 6), salt=st.sampled_from("ab")
    )
    def start(self, prompt: list[int], more: int, salt: str) -> None:
        total = blocks_for(len(prompt) + more)
        matched, unused = self.manager.match(prompt, salt)
        assert len(matched) * BLOCK < len(prompt)
        if unused + total - len(matched) > self.manager.available_blocks:
            with pytest.raises(ExecutorError, match=r"only .* are available"):
                self.manager.start(prompt, salt, total)
            return
        cache = self.manager.start(prompt, salt, total)
        assert cache.blocks == matched
        self.running.append(Running(cache, prompt, len(matched) * BLOCK, len(prompt) + more))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 4), token=st.integers(0, 1))
    def advance(self, data: st.DataObject, count: int, token: int) -> None:
        """Computes some pending tokens, or samples one; the promise always suffices."""
        sequence = data.draw(st.sampled_from(self.running))
        if sequence.computed == len(sequence.tokens):
            if len(sequence.tokens) == sequence.limit:
                return
            sequence.tokens = [*sequence.tokens, token]
        sequence.computed = min(sequence.computed + count, len(sequence.tokens))
        self.manager.extend(sequence.cache, sequence.computed)
        self.manager.commit(sequence.cache, sequence.tokens, sequence.computed)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self.running))
        full = parent.computed // BLOCK
        child_blocks = blocks_for(parent.limit) - full
        if child_blocks > parent.cache.promised - child_blocks:
            return
        child, copy = self.manager.fork(parent.cache, parent.computed, child_blocks)
        assert child.blocks[:full] == parent.cache.blocks[:full]
        assert (copy is None) == (parent.computed % BLOCK == 0)
        if copy is not None:
            assert copy == (parent.cache.blocks[full], child.blocks[full])
        self.running.append(Running(child, parent.tokens[: parent.computed], parent.computed, parent.limit))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        sequence = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.manager.release(sequence.cache)
        assert sequence.cache.blocks == [] and sequence.cache.promised == 0

    @invariant()
    def every_reference_has_an_owner(self) -> None:
        owners = Counter(block for sequence in self.running for block in sequence.cache.blocks)
        owners.update(node["block"] for node in self.manager.tree())
        assert self.manager.ref_counts() == [owners[block] for block in range(BLOCKS)]

    @invariant()
    def the_counts_add_up(self) -> None:
        stats = self.manager.stats()
        owned = {block for sequence in self.running for block in sequence.cache.blocks}
        cached = {node["block"] for node in self.manager.tree()} - owned
        assert stats.used_num_blocks == len(owned)
        assert stats.cached_num_blocks == len(cached)
        assert stats.free_num_blocks + stats.used_num_blocks + stats.cached_num_blocks == stats.max_num_blocks == BLOCKS
        promised = sum(sequence.cache.promised for sequence in self.running)
        assert self.manager.available_blocks == BLOCKS - len(owned) - promised >= 0

    @invariant()
    def no_block_is_shared_where_it_is_written(self) -> None:
        owners = Counter(block for sequence in self.running for block in sequence.cache.blocks)
        tree = {node["block"] for node in self.manager.tree()}
        for sequence in self.running:
            for block in sequence.cache.blocks[sequence.computed // BLOCK :]:
                assert owners[block] == 1 and block not in tree

    @invariant()
    def cached_prefixes_are_those_of_their_sequences(self) -> None:
        nodes = self.manager.tree()
        of_block = {node["block"]: node for node in nodes}
        for sequence in self.running:
            for i in range(sequence.cache.committed):
                node = of_block[sequence.cache.blocks[i]]
                assert node["in_use"]
                assert node["tokens"] == sequence.tokens[i * BLOCK : (i + 1) * BLOCK]
                parent = nodes[node["parent"]]["block"] if node["parent"] >= 0 else None
                assert parent == (sequence.cache.blocks[i - 1] if i else None)


class WithoutReuse(KvCacheManagerMachine):
    reuse = False


TestKvCacheManager = KvCacheManagerMachine.TestCase
TestKvCacheManager.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWithoutReuse = WithoutReuse.TestCase
TestWithoutReuse.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def computed(manager: KvCacheManager, tokens: list[int], total_blocks: int) -> SequenceCache:
    cache = manager.start(tokens, "", total_blocks)
    manager.extend(cache, len(tokens))
    manager.commit(cache, tokens, len(tokens))
    return cache


def test_a_wholly_cached_prompt_still_recomputes_its_last_block() -> None:
    manager = KvCacheManager(8, BLOCK)
    manager.release(computed(manager, [1, 2, 3, 4, 5, 6], 2))
    assert len(manager.match([1, 2, 3, 4, 5, 6], "")[0]) == 1
    assert len(manager.match([1, 2, 3, 4, 5, 6, 7], "")[0]) == 2


def test_two_sequences_that_compute_the_same_block_end_up_sharing_it() -> None:
    manager = KvCacheManager(8, BLOCK)
    first = manager.start([1, 2, 3, 4], "", 2)
    second = manager.start([1, 2, 3, 4], "", 2)
    for sequence in (first, second):
        manager.extend(sequence, 4)
        manager.commit(sequence, [1, 2, 3, 4], 4)
    assert first.blocks[0] == second.blocks[0]
    assert first.blocks[1] != second.blocks[1]
    assert manager.stats().used_num_blocks == 3


def test_eviction_makes_room_for_what_was_promised() -> None:
    manager = KvCacheManager(2, BLOCK)
    manager.release(computed(manager, [1, 2, 3, 4, 5, 6], 2))
    assert manager.stats().cached_num_blocks == 2
    cache = manager.start([7], "", 2)
    manager.extend(cache, 6)
    assert manager.stats().used_num_blocks == 2
    assert manager.stats().cached_num_blocks == 0


def test_more_than_the_promise_is_refused() -> None:
    manager = KvCacheManager(4, BLOCK)
    cache = manager.start([1], "", 1)
    with pytest.raises(ExecutorError, match="more KV cache blocks than it was promised"):
        manager.extend(cache, 4)
