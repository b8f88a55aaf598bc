from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtc.engine.format import ALIGNMENT
from trtc.targets.cpu.memory_plan import Lifetime, plan_memory

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(1, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(lifetimes)
def test_no_two_live_buffers_overlap(buffers):
    plan = plan_memory(buffers)
    for i, a in enumerate(buffers):
        for j in range(i):
            b = buffers[j]
            apart = plan.offsets[i] + a.bytes <= plan.offsets[j] or plan.offsets[j] + b.bytes <= plan.offsets[i]
            assert apart or not a.meets(b)


@given(lifetimes)
def test_every_buffer_is_aligned_and_inside_the_arena(buffers):
    plan = plan_memory(buffers)
    for offset, buffer in zip(plan.offsets, buffers, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset + buffer.bytes <= plan.arena_bytes


@given(lifetimes)
def test_the_arena_is_between_the_peak_of_live_bytes_and_the_sum(buffers):
    plan = plan_memory(buffers)
    peak = max((sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in range(43)), default=0)
    assert peak <= plan.arena_bytes <= plan.bytes_without_reuse


def test_a_chain_of_equal_buffers_needs_two():
    chain = [Lifetime(256, step, step + 1) for step in range(10)]
    assert plan_memory(chain).arena_bytes == 512


def test_no_buffers_need_no_arena():
    assert plan_memory([]).arena_bytes == 0
