"""Parts of lazy weights hold what numpy's slices hold, and read no more rows than they need."""

from __future__ import annotations

import numpy as np
import pytest

from trtc.graph.weight_slices import take_columns, take_rows


class ArrayWeight:
    """A weight in memory that records which rows are read."""

    name, dtype = "w", "float32"

    def __init__(self, array):
        self.array, self.shape, self.reads = array, array.shape, []

    def read(self):
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start, stop):
        assert 0 <= start <= stop <= self.shape[0]
        self.reads.append((start, stop))
        return self.array[start:stop]


@pytest.fixture
def weight():
    return ArrayWeight(np.arange(60, dtype=np.float32).reshape(12, 5))


def test_runs_of_rows_follow_one_another(weight):
    part = take_rows(weight, [range(8, 10), range(1, 4)])
    want = weight.array[[8, 9, 1, 2, 3]]
    assert part.shape == want.shape
    np.testing.assert_array_equal(part.read(), want)
    for start in range(5):
        for stop in range(start + 1, 6):
            np.testing.assert_array_equal(part.read_rows(start, stop), want[start:stop])


def test_only_the_rows_asked_for_are_read(weight):
    part = take_rows(weight, [range(8, 10), range(1, 4)])
    part.read_rows(1, 4)
    assert weight.reads == [(9, 10), (1, 3)]


def test_rows_beyond_the_last_are_zeros(weight):
    part = take_rows(weight, [range(10, 15)])
    np.testing.assert_array_equal(part.read(), np.concatenate([weight.array[10:], np.zeros((3, 5), np.float32)]))
    np.testing.assert_array_equal(part.read_rows(3, 5), np.zeros((2, 5), np.float32))


def test_vectors_have_rows_too():
    vector = ArrayWeight(np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(take_rows(vector, [range(4, 6), range(0, 1)]).read(), [4, 5, 0])


def test_columns_are_a_contiguous_copy(weight):
    part = take_columns(weight, range(2, 4))
    assert part.shape == (12, 2)
    np.testing.assert_array_equal(part.read(), weight.array[:, 2:4])
    rows = part.read_rows(3, 5)
    np.testing.assert_array_equal(rows, weight.array[3:5, 2:4])
    assert rows.flags.c_contiguous


def test_everything_is_the_weight_itself(weight):
    assert take_rows(weight, [range(12)]) is weight
    assert take_columns(weight, range(5)) is weight
