from __future__ import annotations

import shutil

import numpy as np
import pytest

from trtc.engine.reader import open_engine
from trtc.errors import EngineError


def flip(path, offset, mask=0x10):
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def test_open_engine_gives_manifest_and_plan(engine):
    opened = open_engine(engine)
    assert opened.manifest.limits.max_batch_size == opened.plans[0].facts.max_batch_size == 4
    opened.verify_weights()


def test_verify_weights_reports_progress(engine):
    seen = []
    open_engine(engine).verify_weights(lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] and len(seen) == len(open_engine(engine).plans[0].weights)


def test_opening_reads_no_weights_and_verifying_finds_the_flipped_one(engine):
    for weight in open_engine(engine).plans[0].weights:
        flip(engine / "rank0.engine", weight.offset + weight.size // 2)
        opened = open_engine(engine)
        with pytest.raises(EngineError, match=f"weight {weight.name} is damaged"):
            opened.verify_weights()
        flip(engine / "rank0.engine", weight.offset + weight.size // 2)


@pytest.mark.parametrize("name", ["rank0.engine", "tokenizer.json", "engine.json"])
def test_missing_file_is_named(engine, name):
    (engine / name).unlink()
    with pytest.raises(EngineError, match=name):
        open_engine(engine)


@pytest.mark.parametrize("name", ["rank0.engine", "tokenizer.json"])
def test_longer_or_shorter_file_is_named(engine, name):
    path = engine / name
    data = path.read_bytes()
    for changed in (data + b"x", data[:-1], b""):
        path.write_bytes(changed)
        with pytest.raises(EngineError, match=f"{name} has {len(changed)} bytes, expected {len(data)}"):
            open_engine(engine)


def test_changed_tokenizer_is_refused(engine):
    flip(engine / "tokenizer.json", 3)
    with pytest.raises(EngineError, match=r"tokenizer.json was changed"):
        open_engine(engine)


def test_rank_file_of_another_engine_is_refused(engine, tmp_path):
    from tests.python.targets.graphs import build_toy_engine, step_graph

    other = build_toy_engine(step_graph(lambda g, x: x), tmp_path / "other")
    shutil.copy(other / "rank0.engine", engine / "rank0.engine")
    with pytest.raises(EngineError, match=r"rank0.engine"):
        open_engine(engine)


def test_path_that_is_no_engine_says_what_to_pass(tmp_path):
    (tmp_path / "file").write_text("")
    for path, problem in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "file", "is not a directory")):
        with pytest.raises(EngineError, match=f"{problem}; pass an engine directory"):
            open_engine(path)


def test_plan_version_of_a_newer_trtc_is_refused(engine):
    data = bytearray((engine / "rank0.engine").read_bytes())
    data[8:12] = np.uint32(2).tobytes()
    (engine / "rank0.engine").write_bytes(data)
    with pytest.raises(EngineError, match="plan format 2, this version of trtc reads 1"):
        open_engine(engine)
