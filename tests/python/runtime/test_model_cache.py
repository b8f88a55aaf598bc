"""The engine cache behind ``LLM(model)``: one build per checkpoint and settings."""

import multiprocessing
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import trtc.build
import trtc.checkpoint.reader
from trtc import BuildConfig, BuildError, EngineError
from trtc.runtime import model_cache
from trtc.runtime.model_cache import cached_engine, is_engine


def fake_build(model, output, config, *, progress=None):
    """Counts builds in files beside the model; slow enough for two processes to meet."""
    with (Path(model) / "builds").open("a") as log:
        log.write("x")
    time.sleep(0.2)
    Path(output).mkdir(exist_ok=True)
    (Path(output) / "engine.json").write_text("{}")


def fake_checkpoint(model, progress=None):
    return SimpleNamespace(path=Path(model), fingerprint=(Path(model) / "weights").read_text())


def fake_open(engine):
    if not is_engine(engine) or (engine / "engine.json").read_text() != "{}":
        raise EngineError("damaged")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("TRTC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trtc.build, "build_engine", fake_build)
    monkeypatch.setattr(trtc.checkpoint.reader, "open_checkpoint", fake_checkpoint)
    monkeypatch.setattr(model_cache, "open_engine", fake_open)
    model = tmp_path / "My Model"
    model.mkdir()
    (model / "weights").write_text("1")
    return model


def builds(model):
    return len((model / "builds").read_text())


def test_a_model_is_built_once(model, tmp_path):
    engine = cached_engine(model, BuildConfig())
    assert engine == cached_engine(model, BuildConfig()) and is_engine(engine)
    assert builds(model) == 1
    assert engine.parent == tmp_path / "cache" / "engines" and engine.name.startswith("My-Model-bfloat16-")


def test_other_settings_or_other_weights_are_another_engine(model):
    engines = {cached_engine(model, BuildConfig()), cached_engine(model, BuildConfig(max_batch_size=2))}
    (model / "weights").write_text("2")
    engines.add(cached_engine(model, BuildConfig()))
    assert len(engines) == 3 and builds(model) == 3


def test_a_damaged_engine_is_built_again(model):
    engine = cached_engine(model, BuildConfig())
    (engine / "engine.json").write_text("{")
    assert cached_engine(model, BuildConfig()) == engine and builds(model) == 2
    cached_engine(model, BuildConfig())
    assert builds(model) == 2


def test_two_processes_build_once(model):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=cached_engine, args=(model, BuildConfig())) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert builds(model) == 1


def test_a_failed_build_is_tried_again(model, monkeypatch):
    def failing(*_, **__):
        raise BuildError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(trtc.build, "build_engine", failing)
        with pytest.raises(BuildError, match="disk full"):
            cached_engine(model, BuildConfig())
    assert is_engine(cached_engine(model, BuildConfig()))


def test_a_cache_that_cannot_be_written_is_one_sentence(model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRTC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="cannot be written: Not a directory; set TRTC_CACHE_DIR"):
        cached_engine(model, BuildConfig())
