"""The TensorRT backend over a GPU that only records: padding, staging, graphs, limits and errors."""

from __future__ import annotations

import numpy as np
import pytest

from trtc import _test_tensorrt as t
from trtc.errors import EngineError, ExecutorError

LIMITS = {
    "vocab_size": 5,
    "max_batch_size": 20,
    "max_num_tokens": 64,
    "max_seq_len": 100,
    "max_logit_rows": 32,
    "tokens_per_block": 16,
}
FACTS = {
    "layer_block_bytes": [1024, 2048],
    "vocab_size": 5,
    "tokens_per_block": 16,
    "max_decode_seqs": 20,
    "max_seqs": 20,
    "max_tokens": 64,
    "max_logit_rows": 32,
    "max_columns": 7,
    "max_kv_blocks": 50,
}
COLUMNS = 7  # of the block table that the executor gives: 100 positions in blocks of 16


def filled(values, numbers):
    for name, number in numbers.items():
        setattr(values, name, number)
    return values


def make_backend(refuses_capture=False, blocks=50, **facts):
    manifest = filled(t.Manifest(), {**LIMITS, "engine_hash": "abc"})
    backend = t.RecordedBackend(manifest, filled(t.GpuEngineFacts(), {**FACTS, **facts}), refuses_capture)
    if blocks:
        backend.allocate_kv_cache(blocks)
        backend.calls()
    return backend


def decode(backend, contexts):
    """One token for each sequence, which own the blocks 0, 1, ... in turn."""
    seqs = len(contexts)
    return backend.run(
        input_ids=[i % 5 for i in range(seqs)],
        position_ids=[context - 1 for context in contexts],
        query_start=list(range(seqs + 1)),
        context_lens=contexts,
        block_table=[[(seq + column) % 50 for column in range(COLUMNS)] for seq in range(seqs)],
        logit_rows=list(range(seqs)),
    )


def test_a_decode_step_is_padded_and_its_table_cut_to_the_longest_context():
    backend = make_backend()
    logits = decode(backend, [17, 40, 3])
    upload, run = backend.calls()
    assert run == "enqueue decode 4 4 4 4"  # 3 rows to 4, 3 columns to 4
    assert upload == f"upload {6 * 256}"
    assert backend.staged(4, 4, 4, 4) == {
        "input_ids": [0, 1, 2, 0],
        "position_ids": [16, 39, 2, 0],
        "query_start": [0, 1, 2, 3, 3],  # the fourth sequence has no tokens: the fourth row belongs to none
        "context_lens": [17, 40, 3, 0],
        "block_table": [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 0, 0, 0, 0],
        "logit_rows": [0, 1, 2, 0],
    }
    assert np.array_equal(logits, [[row * 1000 + word for word in range(5)] for row in range(3)])


def test_a_mixed_step_is_not_padded():
    backend = make_backend()
    backend.run([1, 2, 3, 4], [5, 0, 1, 2], [0, 1, 4], [6, 3], [[9] * COLUMNS, [8] * COLUMNS], [0, 3])
    assert backend.calls()[-1] == "enqueue mixed 4 2 1 2"
    assert backend.staged(4, 2, 1, 2) == {
        "input_ids": [1, 2, 3, 4],
        "position_ids": [5, 0, 1, 2],
        "query_start": [0, 1, 4],
        "context_lens": [6, 3],
        "block_table": [9, 8],
        "logit_rows": [0, 3],
    }


def test_a_step_that_wants_no_logits_makes_one_row_and_returns_none():
    backend = make_backend()
    assert backend.run([1, 2], [0, 1], [0, 2], [2], [[3] * COLUMNS], []).shape == (0, 5)
    assert backend.calls()[-1] == "enqueue mixed 2 1 1 1"
    assert backend.staged(2, 1, 1, 1)["logit_rows"] == [0]


@pytest.mark.parametrize(
    ("rows", "padded"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 20), (20, 20)]
)
def test_decode_steps_come_in_few_sizes(rows, padded):
    backend = make_backend()
    decode(backend, [1] * rows)
    assert backend.calls()[-1] == f"enqueue decode {padded} {padded} 1 {padded}"


@pytest.mark.parametrize(("context", "columns"), [(1, 1), (16, 1), (17, 2), (33, 4), (64, 4), (65, 7), (100, 7)])
def test_the_table_has_a_power_of_two_of_columns_or_all(context, columns):
    backend = make_backend()
    decode(backend, [context])
    assert backend.calls()[-1] == f"enqueue decode 1 1 {columns} 1"


def test_a_decode_shape_is_enqueued_then_captured_then_launched():
    backend = make_backend()
    runs = []
    for contexts in ([5], [6], [7], [20, 3], [8], [21, 4], [22, 5], [9]):
        decode(backend, contexts)
        runs.append([call for call in backend.calls() if not call.startswith("upload")])
    one, two = "decode 1 1 1 1", "decode 2 2 2 2"
    assert runs == [
        [f"enqueue {one}"],
        [f"capture {one}", "launch 0"],
        ["launch 0"],
        [f"enqueue {two}"],
        ["launch 0"],
        [f"capture {two}", "launch 1"],
        ["launch 1"],
        ["launch 0"],
    ]


def test_a_refused_capture_ends_capturing_and_nothing_else():
    backend = make_backend(refuses_capture=True)
    runs = []
    for contexts in ([5], [6], [7], [20, 3], [21, 4]):
        decode(backend, contexts)
        runs += [call for call in backend.calls() if not call.startswith("upload")]
    one, two = "decode 1 1 1 1", "decode 2 2 2 2"
    assert runs == [f"enqueue {one}", f"capture {one}", f"enqueue {one}", f"enqueue {one}", *[f"enqueue {two}"] * 2]


def test_the_staging_memory_takes_the_largest_step():
    backend = make_backend()
    seqs = 20
    lengths = [4] * 4 + [3] * 16  # 64 tokens
    starts = [0, *np.cumsum(lengths).tolist()]
    table = [list(range(COLUMNS))] * seqs
    backend.run([1] * 64, [2] * 64, starts, [100] * seqs, table, list(range(32)))
    (upload, _) = backend.calls()
    assert int(upload.split()[1]) == backend.staging_bytes


def test_memory_is_the_devices():
    backend = make_backend(blocks=0)
    assert backend.free_device_memory == 123456
    assert backend.kv_bytes_per_block == 3072
    assert backend.max_kv_blocks == 50


def test_blocks_are_copied_where_they_differ():
    backend = make_backend()
    backend.copy_block(3, 5)
    backend.copy_block(4, 4)
    assert backend.calls() == ["copy 3 5"]
    for source, destination in ((50, 1), (1, -1)):
        with pytest.raises(ExecutorError, match=r"copy_block: block (50|-1) is not one of 50"):
            backend.copy_block(source, destination)


@pytest.mark.parametrize("blocks", [0, -1, 51])
def test_a_pool_beyond_the_plan_is_refused(blocks):
    backend = make_backend(blocks=0)
    with pytest.raises(ExecutorError, match=f"got {blocks} KV blocks, expected 1 to the plan's own 50"):
        backend.allocate_kv_cache(blocks)
    backend.allocate_kv_cache(50)
    with pytest.raises(ExecutorError, match="allocated already"):
        backend.allocate_kv_cache(1)


def test_a_malformed_step_never_reaches_the_device():
    backend = make_backend()
    with pytest.raises(ExecutorError, match="input_ids holds 5, expected 0 to 4"):
        backend.run([5], [0], [0, 1], [1], [[0] * COLUMNS], [0])
    with pytest.raises(ExecutorError, match="block_table holds 50, expected 0 to 49"):
        backend.run([1], [0], [0, 1], [1], [[50] * COLUMNS], [0])
    with pytest.raises(ExecutorError, match="allocate_kv_cache was not called"):
        decode(make_backend(blocks=0), [1])
    assert backend.calls() == []


@pytest.mark.parametrize(
    ("fact", "value", "problem"),
    [
        ("vocab_size", 6, "the plan takes 6 words, but engine.json says 5"),
        ("tokens_per_block", 32, "the plan takes 32 tokens per block, but engine.json says 16"),
        ("max_decode_seqs", 19, "the plan takes 19 sequences in a decode step, but engine.json says 20"),
        ("max_seqs", 19, "the plan takes 19 sequences in a mixed step, but engine.json says 20"),
        ("max_tokens", 63, "the plan takes 63 tokens, but engine.json says 64"),
        ("max_logit_rows", 31, "the plan takes 31 rows of logits, but engine.json says 32"),
        ("max_columns", 6, "the plan takes 6 blocks per sequence, but engine.json says 7"),
        ("layer_block_bytes", [], "the plan has no KV cache"),
    ],
)
def test_a_plan_that_contradicts_its_manifest_is_refused(fact, value, problem):
    with pytest.raises(EngineError, match=f"{problem}; build the engine again"):
        make_backend(**{fact: value})
