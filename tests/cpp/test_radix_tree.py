"""The prefix tree finds exactly the longest stored prefix and forgets the least recently used leaf first."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trtc._test_executor import BlockPool, RadixTree

Prefix = tuple[str, tuple[int, ...]]  # salt, tokens up to and including the node's block

SALTS = st.sampled_from(["", "tenant"])
PATHS = st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=2), min_size=1, max_size=3)


class RadixTreeMachine(RuleBasedStateMachine):
    """Against a dictionary of prefixes. A node's last use is when its last owner let go of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(64)
        self.tree = RadixTree(self.pool, 2)
        self.blocks: dict[Prefix, int] = {}
        self.used_at: dict[Prefix, int] = {}
        self.owned: list[Prefix] = []
        self.clock = 0

    @precondition(lambda self: self.pool.num_free >= 3)
    @rule(salt=SALTS, path=PATHS)
    def insert(self, salt: str, path: list[list[int]]) -> None:
        """A sequence computes a prompt, stores it and ends; equal blocks that are there already stay."""
        fresh = [self.pool.allocate() for _ in path]
        stored = self.tree.insert_path(salt, path, fresh)
        tokens: tuple[int, ...] = ()
        prefixes = []
        for block_tokens, block, result in zip(path, fresh, stored, strict=True):
            tokens += tuple(block_tokens)
            assert result == self.blocks.setdefault((salt, tokens), block)
            prefixes.append((salt, tokens))
        for prefix, block in reversed(list(zip(prefixes, fresh, strict=True))):
            self.pool.release(block)
            if self.blocks[prefix] == block:
                self.tree.release(block)
                self.touch(prefix)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        """A sequence takes a whole path, as they always do."""
        salt, tokens = data.draw(st.sampled_from(sorted(self.blocks)))
        for end in range(2, len(tokens) + 1, 2):
            block = self.blocks[salt, tokens[:end]]
            self.pool.add_ref(block)
            self.tree.acquire(block)
        self.owned.append((salt, tokens))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        salt, tokens = self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1)))
        for end in range(len(tokens), 0, -2):
            prefix = (salt, tokens[:end])
            self.pool.release(self.blocks[prefix])
            self.tree.release(self.blocks[prefix])
            if prefix not in self.in_use():
                self.touch(prefix)

    @rule()
    def evict(self) -> None:
        leaves = [p for p in self.blocks if p not in self.in_use() and not self.has_children(p)]
        assert self.tree.evict() == bool(leaves)
        if leaves:
            oldest = min(leaves, key=lambda prefix: self.used_at[prefix])
            assert self.pool.ref_count(self.blocks.pop(oldest)) == 0

    @rule(salt=SALTS, tokens=st.lists(st.integers(0, 1), max_size=8), max_blocks=st.integers(0, 4))
    def match(self, salt: str, tokens: list[int], max_blocks: int) -> None:
        expected = []
        for end in range(2, min(len(tokens), 2 * max_blocks) + 1, 2):
            if (salt, tuple(tokens[:end])) not in self.blocks:
                break
            expected.append(self.blocks[salt, tuple(tokens[:end])])
        assert self.tree.match(tokens, salt, max_blocks) == expected

    @invariant()
    def counts_agree(self) -> None:
        assert self.tree.num_nodes == len(self.blocks)
        assert self.tree.num_unused == len(set(self.blocks) - self.in_use())

    def touch(self, prefix: Prefix) -> None:
        self.clock += 1
        self.used_at[prefix] = self.clock

    def in_use(self) -> set[Prefix]:
        return {(salt, tokens[:end]) for salt, tokens in self.owned for end in range(2, len(tokens) + 1, 2)}

    def has_children(self, prefix: Prefix) -> bool:
        salt, tokens = prefix
        return any(s == salt and len(t) > len(tokens) and t[: len(tokens)] == tokens for s, t in self.blocks)


TestRadixTree = RadixTreeMachine.TestCase


def test_a_prefix_under_another_salt_is_not_found() -> None:
    pool = BlockPool(4)
    tree = RadixTree(pool, 2)
    tree.insert_path("a", [[1, 2]], [pool.allocate()])
    assert tree.match([1, 2], "a", 9) == [0]
    assert tree.match([1, 2], "b", 9) == []
    assert tree.match([1, 2], "", 9) == []


def test_a_leaf_in_use_is_not_evicted() -> None:
    pool = BlockPool(2)
    tree = RadixTree(pool, 2)
    tree.insert_path("", [[1, 2], [3, 4]], [pool.allocate(), pool.allocate()])
    assert not tree.evict()
    assert pool.num_free == 0
