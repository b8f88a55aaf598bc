"""Paged attention of every instruction set against float64, and its invariance bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cpp.attention_steps import Shape, Step, attention_reference, random_step
from tests.cpp.guarded import ISAS, GuardedRows, assert_within, same_bits

# (query rows, context): decode rows, whole prompts, chunks in the middle, one sequence without rows.
MIXED = [(1, 1), (5, 5), (1, 40), (7, 23), (0, 9), (33, 70), (1, 128)]

pytestmark = pytest.mark.parametrize("isa", ISAS)


def check(isa: str, step: Step) -> None:
    expected, bound = attention_reference(step)
    query, y = GuardedRows(step.query), GuardedRows.unset(*step.query.shape)
    guarded = replace_query(step, query.rows)
    guarded.run(isa, y=y.rows)
    assert_within(y.rows, expected, bound)
    y.assert_guards_intact()


def replace_query(step: Step, query: np.ndarray) -> Step:
    return Step(step.shape, query, step.pool, step.query_start, step.context_lens, step.block_table)


@pytest.mark.parametrize("head_dim", [8, 16, 24, 64, 80, 96, 128, 256, 512, 1, 5, 33, 67])
def test_every_head_size_matches_float64(isa: str, head_dim: int) -> None:
    shape = Shape(heads=3, kv_heads=1, head_dim=head_dim, scale=head_dim**-0.5)
    check(isa, random_step(shape, [(1, 20), (6, 37)]))
    check(isa, random_step(replace(shape, bf16=True), [(1, 20), (6, 37)]))


@pytest.mark.parametrize("group", range(1, 9))
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_every_group_of_query_heads_matches_float64(isa: str, kv_heads: int, group: int) -> None:
    check(isa, random_step(Shape(heads=kv_heads * group, kv_heads=kv_heads, bf16=group % 2 == 0), MIXED))


@pytest.mark.parametrize("block_size", [16, 32, 48, 64, 128, 8, 20])
@pytest.mark.parametrize("bf16", [False, True])
def test_every_block_size_matches_float64(isa: str, block_size: int, bf16: bool) -> None:
    check(isa, random_step(Shape(block_size=block_size, bf16=bf16), MIXED))


@pytest.mark.parametrize("window", [1, 2, 7, 16, 17, 50, 1000])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_windows_and_soft_caps_match_float64(isa: str, window: int, softcap: float) -> None:
    check(isa, random_step(Shape(heads=3, kv_heads=1, window=window, softcap=softcap), MIXED, amplitude=2.0))


def test_more_query_heads_than_one_task_holds(isa: str) -> None:
    check(isa, random_step(Shape(heads=70, kv_heads=1, head_dim=8), [(2, 18), (1, 5)]))


@pytest.mark.parametrize(
    "shape",
    [
        Shape(heads=4, kv_heads=4, head_dim=24),
        Shape(heads=6, kv_heads=2, head_dim=33, bf16=True, block_size=32),
        Shape(heads=3, kv_heads=1, window=13),
        Shape(heads=5, kv_heads=1, window=40, softcap=5.0, bf16=True),
    ],
)
def test_a_row_has_the_same_bits_alone_in_chunks_in_batches_and_on_any_threads(isa: str, shape: Shape) -> None:
    step = random_step(shape, [(1, 30), (75, 90), (17, 17), (1, 65)], seed=3)
    whole = step.run(isa)
    for threads in range(2, 6):
        assert same_bits(step.run(isa, threads=threads), whole)
    for seq in range(len(step.context_lens)):
        start, stop = step.query_start[seq : seq + 2]
        for chunk in (1, 7, 64, stop - start):
            pieces = [
                step.rows(seq, begin, min(begin + chunk, stop - start)).run(isa)
                for begin in range(0, stop - start, chunk)
            ]
            assert same_bits(np.concatenate(pieces), whole[start:stop])


def test_the_blocks_place_in_the_pool_does_not_matter(isa: str) -> None:
    step = random_step(Shape(head_dim=20), [(9, 50)])
    order = np.random.default_rng(1).permutation(len(step.pool))
    moved_to = np.argsort(order).astype(np.int32)
    moved = Step(
        step.shape, step.query, step.pool[order], step.query_start, step.context_lens, moved_to[step.block_table]
    )
    assert same_bits(moved.run(isa), step.run(isa))


def test_tokens_outside_the_window_are_never_touched(isa: str) -> None:
    step = random_step(Shape(heads=3, kv_heads=1, window=10), [(4, 60)])
    before = step.run(isa)
    for position in range(60 - 4 + 1 - 10):
        step.pool[step.block_table[0, position // 16], :, :, position % 16] = np.nan
    assert same_bits(step.run(isa), before)


def test_later_tokens_of_the_same_chunk_are_never_touched(isa: str) -> None:
    step = random_step(Shape(heads=3, kv_heads=1), [(40, 40)])
    before = step.run(isa)
    for position in (39, 38, 20):
        step.pool[step.block_table[0, position // 16], :, :, position % 16] = np.nan
        after = step.run(isa)
        assert same_bits(after[:position], before[:position])
        assert np.isnan(after[position]).all()


@pytest.mark.parametrize("signs", [(1, 1), (-1, -1), (1, -1)])
@pytest.mark.parametrize("softcap", [0.0, 30.0])
def test_scores_beyond_float32_give_no_nan(isa: str, signs: tuple[int, int], softcap: float) -> None:
    step = random_step(Shape(heads=1, kv_heads=1, scale=1.0, softcap=softcap), [(1, 30), (20, 40)])
    step.query[:] = np.float32(1e25)
    for slot in range(16):  # keys along or against the query: the scores are infinite, of either sign
        step.pool[:, 0, :, slot] = signs[slot % 2] * np.float32(1e25) * (1 + slot)
    y = step.run(isa)
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= np.nanmax(np.abs(step.pool[:, 1])) * (1 + 1e-5)  # still an average of values


@pytest.mark.parametrize("amplitude", [1e3, 1e15])
def test_large_scores_give_an_average_of_values(isa: str, amplitude: float) -> None:
    step = random_step(Shape(scale=1.0), [(1, 30), (20, 40)])
    step.query *= np.float32(amplitude)
    step.pool[:, 0] *= np.float32(amplitude)
    y = step.run(isa)
    assert np.abs(y).max() <= np.nanmax(np.abs(step.pool[:, 1])) * (1 + 1e-5)


def test_a_score_far_above_the_others_picks_its_value(isa: str) -> None:
    step = random_step(Shape(heads=1, kv_heads=1, scale=1.0), [(1, 50)])
    step.pool[:, 0] *= 1e-3
    step.pool[step.block_table[0, 20 // 16], 0, 0, 20 % 16] = 50 * step.query[0]
    chosen = step.pool[step.block_table[0, 20 // 16], 1, 0, 20 % 16]
    assert_within(step.run(isa)[0], chosen.astype(np.float64), 1e-6 * np.abs(chosen).max())


def test_a_nan_query_row_spoils_only_itself(isa: str) -> None:
    step = random_step(Shape(), [(9, 30)])
    before = step.run(isa)
    query = step.query.copy()
    query[4] = np.nan
    after = replace_query(step, query).run(isa)
    assert np.isnan(after[4]).all()
    assert same_bits(np.delete(after, 4, axis=0), np.delete(before, 4, axis=0))
