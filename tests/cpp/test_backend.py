"""The CPU backend's refusals of bad steps, its KV pool and its limits, over a toy engine."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.python.targets.graphs import SETTINGS, build_toy_engine, step_graph, step_inputs
from trtc import _core
from trtc.engine import format as fmt
from trtc.errors import EngineError, ExecutorError


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_engine(step_graph(lambda g, x: x), tmp_path_factory.mktemp("toy") / "engine")


@pytest.fixture
def model(engine: Path) -> Any:
    loaded = _core.CpuModel(str(engine), 1)
    loaded.allocate_kv_cache(4)
    return loaded


def test_info_repeats_the_build_settings(model: Any) -> None:
    info = model.info
    assert (info.vocab_size, info.num_layers, len(info.engine_hash)) == (29, 1, 64)
    assert (info.max_batch_size, info.max_num_tokens) == (SETTINGS.max_batch_size, SETTINGS.max_num_tokens)
    assert (info.max_seq_len, info.tokens_per_block) == (SETTINGS.max_seq_len, SETTINGS.tokens_per_block)
    assert info.kv_bytes_per_block == 2 * 8 * 16 * 4


def test_a_step_without_logit_rows_only_fills_the_cache(model: Any) -> None:
    inputs = step_inputs()
    assert model.run(**{**inputs, "logit_rows": np.zeros(0, np.int32)}).shape == (0, 29)
    decode = {
        "input_ids": np.array([5], np.int32),
        "position_ids": np.array([18], np.int32),
        "query_start": np.array([0, 1], np.int32),
        "context_lens": np.array([19], np.int32),
        "block_table": np.array([[1, 2]], np.int32),
        "logit_rows": np.array([0], np.int32),
    }
    assert np.isfinite(model.run(**decode)).all()


BAD_STEPS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "token id": (lambda s: {"input_ids": s["input_ids"] + 29}, "input_ids holds"),
    "negative token id": (lambda s: {"input_ids": s["input_ids"] - 29}, "input_ids holds -"),
    "position": (lambda s: {"position_ids": s["position_ids"] + 64}, "position_ids holds"),
    "positions too few": (
        lambda s: {"position_ids": s["position_ids"][1:]},
        "position_ids has 18 elements, expected 19",
    ),
    "sequence without tokens": (lambda s: {"query_start": np.array([0, 0, 19])}, "sequence 0 has 0 new tokens"),
    "query_start beyond": (lambda s: {"query_start": np.array([0, 1, 20])}, "query_start does not run from 0"),
    "query_start too short": (lambda s: {"query_start": np.array([0, 19])}, "query_start has 2 elements, expected 3"),
    "context shorter than query": (lambda s: {"context_lens": np.array([1, 17])}, "context length 17"),
    "context beyond max_seq_len": (lambda s: {"context_lens": np.array([1, 65])}, "<= 64"),
    "context without blocks": (lambda s: {"context_lens": np.array([1, 33])}, "needs 3 blocks, block_table has 2"),
    "block beyond the pool": (lambda s: {"block_table": np.array([[3, 0], [4, 2]])}, "block_table holds 4"),
    "negative block": (lambda s: {"block_table": np.array([[3, 0], [1, -1]])}, "block_table holds -1"),
    "table without columns": (lambda s: {"block_table": np.zeros((2, 0), np.int32)}, "block_table has no columns"),
    "table with too few rows": (lambda s: {"block_table": np.array([[3, 0]])}, "block_table has 2 elements"),
    "logit row beyond": (lambda s: {"logit_rows": np.array([19])}, "logit_rows holds 19"),
    "logit rows descending": (lambda s: {"logit_rows": np.array([2, 1])}, "logit_rows is not ascending"),
    "no tokens": (lambda s: {name: array[:0] for name, array in s.items()}, "no tokens"),
}


@pytest.mark.parametrize(("change", "message"), BAD_STEPS.values(), ids=BAD_STEPS)
def test_bad_step_is_refused_by_name(model: Any, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    inputs = step_inputs()
    with pytest.raises(ExecutorError, match=message):
        model.run(**{**inputs, **change(inputs)})
    assert np.isfinite(model.run(**inputs)).all(), "the model still works"


def test_steps_over_the_limits_are_refused(model: Any) -> None:
    too_many = {
        "input_ids": np.zeros(33, np.int32),
        "position_ids": np.zeros(33, np.int32),
        "query_start": np.array([0, 33]),
        "context_lens": np.array([33]),
        "block_table": np.zeros((1, 3)),
        "logit_rows": np.array([0]),
    }
    with pytest.raises(ExecutorError, match="33 tokens, the engine's limit is 32"):
        model.run(**too_many)
    five = np.arange(5)
    crowd = {
        "input_ids": five,
        "position_ids": five * 0,
        "query_start": np.arange(6),
        "context_lens": five * 0 + 1,
        "block_table": five[:, None] * 0,
        "logit_rows": five,
    }
    with pytest.raises(ExecutorError, match="5 sequences, the engine's limit is 4"):
        model.run(**crowd)


def test_run_before_the_cache_exists_is_refused(engine: Path) -> None:
    with pytest.raises(ExecutorError, match="allocate_kv_cache was not called"):
        _core.CpuModel(str(engine), 1).run(**step_inputs())


@pytest.mark.parametrize(("blocks", "message"), [(0, "at least 1"), (-3, "at least 1"), (2**31 - 1, "bytes")])
def test_impossible_cache_sizes_are_refused(engine: Path, blocks: int, message: str) -> None:
    with pytest.raises(ExecutorError, match=message):
        _core.CpuModel(str(engine), 1).allocate_kv_cache(blocks)


def test_cache_is_allocated_once(model: Any) -> None:
    with pytest.raises(ExecutorError, match="allocated already"):
        model.allocate_kv_cache(4)


def test_copied_block_continues_like_the_original(model: Any) -> None:
    model.run(**step_inputs())
    model.copy_block(2, 0)
    decode = {
        "input_ids": np.array([7], np.int32),
        "position_ids": np.array([18], np.int32),
        "query_start": np.array([0, 1], np.int32),
        "context_lens": np.array([19], np.int32),
        "logit_rows": np.array([0], np.int32),
    }
    original = model.run(**decode, block_table=np.array([[1, 2]], np.int32))
    np.testing.assert_array_equal(model.run(**decode, block_table=np.array([[1, 0]], np.int32)), original)


@pytest.mark.parametrize(("source", "destination"), [(4, 0), (0, 4), (-1, 0)])
def test_copy_of_a_block_outside_the_pool_is_refused(model: Any, source: int, destination: int) -> None:
    with pytest.raises(ExecutorError, match="copy_block"):
        model.copy_block(source, destination)


def test_negative_threads_are_refused(engine: Path) -> None:
    with pytest.raises(ExecutorError, match="threads"):
        _core.CpuModel(str(engine), -1)


def test_unknown_isa_is_refused_at_load(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTC_CPU_ISA", "mmx")
    with pytest.raises(EngineError, match="mmx"):
        _core.CpuModel(str(engine), 1)


def test_engine_that_needs_a_higher_isa_is_refused(engine: Path, tmp_path: Path) -> None:
    data = bytearray((engine / "rank0.engine").read_bytes())
    model_record = fmt.HEADER.unpack(data)["sections"][fmt.SectionKind.MODEL]["offset"]
    required_isa = model_record + 28
    assert int.from_bytes(data[required_isa : required_isa + 4], "little") == 0
    data[required_isa] = 9
    data[12:16] = bytes(4)
    data[12:16] = zlib.crc32(data[: fmt.HEADER.unpack(data)["plan_bytes"]]).to_bytes(4, "little")
    (tmp_path / "rank0.engine").write_bytes(data)
    with pytest.raises(EngineError, match="instruction set level 9"):
        _core.CpuModel(str(tmp_path), 1)
