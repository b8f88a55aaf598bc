"""Grids and workspace follow from shapes alone."""

from __future__ import annotations

import pytest

from plugins.kernels.launch import grid, split_count, workspace_bytes, workspace_rows
from plugins.kernels.shape import SPLIT, AttentionShape
from plugins.kernels.specs import POINTERS, SCALARS, kernel_specs

SHAPE = AttentionShape(num_heads=32, num_kv_heads=8, head_dim=128, block_size=64, scale=0.1, rotary_dim=128)


def test_few_rows_over_a_long_context_are_split_and_many_are_not():
    max_blocks = 32768 // SHAPE.block_size
    rows = workspace_rows(SHAPE, 2048, max_blocks)
    assert rows == 2048
    assert split_count(SHAPE, 32, max_blocks, rows) == 32768 // SPLIT
    assert split_count(SHAPE, 33, max_blocks, rows) == 1
    assert split_count(SHAPE, 2048, 8, rows) == 1


def test_a_single_row_can_be_split_however_small_the_steps_are():
    rows = workspace_rows(SHAPE, 8, 512)
    assert split_count(SHAPE, 1, 512, rows) == 512 * SHAPE.block_size // SPLIT


def test_the_workspace_holds_rotated_queries_and_parts():
    assert workspace_bytes(SHAPE, 8, 8) == 8 * 32 * (128 * 2 + 128 * 4 + 2 * 4)
    unrotated = AttentionShape(num_heads=3, num_kv_heads=1, head_dim=64, block_size=16, scale=0.1)
    assert workspace_bytes(unrotated, 1, 1) == 768 + 256


def test_every_sequence_finds_its_tiles_in_the_grid():
    spec = kernel_specs(SHAPE)[1]
    tokens_per_tile = spec.constants["BLOCK_TOKENS"]
    for lengths in [(1,), (16, 16, 16), (0, 17, 1, 0, 33), (15, 1, 31, 2), (0, 0)]:
        needed = sum(-(-rows // tokens_per_tile) for rows in lengths)
        assert grid(spec.role, spec.constants, sum(lengths), len(lengths), 1)[0] >= needed
        begin = last = 0
        for seq, rows in enumerate(lengths):
            first = begin // tokens_per_tile + seq
            assert first >= last
            last, begin = first + -(-rows // tokens_per_tile), begin + rows
        assert last <= grid(spec.role, spec.constants, sum(lengths), len(lengths), 1)[0]


def test_every_parameter_of_a_kernel_has_a_type():
    pytest.importorskip("triton")
    for spec in kernel_specs(SHAPE):
        names = [name for name in spec.function().arg_names if name not in spec.constants]
        assert set(names) <= {*POINTERS, *SCALARS}
        assert set(spec.constants) < set(spec.function().arg_names)
