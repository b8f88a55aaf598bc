"""The attention kernels in Triton's interpreter against the graph's reference."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.kernels.shape import AttentionShape
from tests.python.plugins.kernels.attention_steps import Step, random_step, reference, same_bits
from tests.python.plugins.kernels.conftest import Run

# (query rows, context): decode rows, whole prompts, chunks in the middle, a sequence without rows, contexts of two
# splits.
MIXED = [(1, 1), (5, 5), (0, 9), (11, 70), (1, 527), (3, 514)]


def shape(head_dim: int, kv_heads: int, group: int, block_size: int, **others: object) -> AttentionShape:
    return AttentionShape(
        num_heads=kv_heads * group,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        scale=head_dim**-0.5,
        **others,
    )


SHAPES = [
    shape(64, 2, 2, 16, rotary_dim=64),
    shape(80, 1, 3, 32, rotary_dim=32, compute_dtype="bfloat16"),
    shape(96, 3, 1, 64, rotary_dim=96, window=37),
    shape(128, 1, 4, 128, rotary_dim=128, softcap=2.0, compute_dtype="bfloat16"),
    shape(256, 1, 8, 16, rotary_dim=256, window=60, softcap=20.0),
    shape(128, 1, 5, 32, window=1),
    shape(64, 1, 7, 64, rotary_dim=64, window=513, compute_dtype="bfloat16"),
    shape(64, 1, 6, 128, rotary_dim=16, cache_dtype="float8_e4m3"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"d{s.head_dim}g{s.num_heads // s.num_kv_heads}b{s.block_size}")
def test_a_mixed_step_matches_the_reference_and_splits_change_no_bit(run: Run, shape: AttentionShape) -> None:
    step = random_step(shape, MIXED)
    assert step.splits == 2
    output, kv_cache = run(step)
    check(step, output, kv_cache)
    split_output, _ = run(step, step.splits)
    assert same_bits(split_output, output)


def test_a_prompt_of_several_tiles_matches_the_reference(run: Run) -> None:
    step = random_step(shape(64, 2, 1, 32, window=50), [(3, 9), (66, 70)])
    check(step, *run(step))


def check(step: Step, output: np.ndarray, kv_cache: np.ndarray) -> None:
    expected, bound, expected_cache = reference(step)
    assert same_bits(kv_cache, expected_cache)
    error = np.abs(output.astype(np.float32) - expected)
    assert np.all(error <= bound), f"{np.max(error / bound)} times the bound"
