"""Engines that ``LLM(model)`` built, kept in the user's cache directory: one per checkpoint and settings."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trtc
from trtc.config import BuildConfig
from trtc.engine.manifest import MANIFEST_NAME, SCHEMA_VERSION
from trtc.engine.reader import open_engine
from trtc.environment import cache_dir, user_path
from trtc.errors import BuildError, EngineError

Progress = Callable[[str, int, int], None]  # stage, done, total


def is_engine(path: str | Path) -> bool:
    """Whether ``path`` is a directory that holds an engine's manifest."""
    return (user_path(path) / MANIFEST_NAME).is_file()


def cached_engine(model: str | Path, config: BuildConfig, progress: Progress | None = None) -> Path:
    """The engine of ``model`` under ``config``, built when the cache has none yet or a damaged one.

    Processes that want the same engine wait for the first to build it. Raises what ``build_engine`` raises.
    """
    from trtc.checkpoint.reader import open_checkpoint

    checkpoint = open_checkpoint(model, progress=progress)
    name = _engine_name(checkpoint.path, checkpoint.fingerprint, config)
    directory = cache_dir() / "engines"
    engine = directory / name
    if _is_whole(engine):
        return engine
    with _locked(directory, name):
        if not _is_whole(engine):
            from trtc.build import build_engine

            build_engine(model, engine, config, progress=progress)
    return engine


def _is_whole(engine: Path) -> bool:
    """Whether ``engine`` is there and opens. The cache is ours, so a damaged one is built anew rather than reported."""
    try:
        open_engine(engine)
    except EngineError:
        return False
    return True


def _engine_name(model: Path, fingerprint: str, config: BuildConfig) -> str:
    """Readable, and different for whatever makes a different engine."""
    identity = {
        "fingerprint": fingerprint,
        "config": config.model_dump(mode="json"),
        "trtc": trtc.__version__,
        "schema": SCHEMA_VERSION,
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model.stem if model.is_file() else model.name)[:64]
    precision = config.dtype if config.quant.quant_algo == "none" else config.quant.quant_algo.value
    return f"{stem}-{precision}-{key}"


@contextmanager
def _locked(directory: Path, name: str) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / f".{name}.lock").open("w")
    except OSError as error:
        raise BuildError(
            f"the engine cache {directory} cannot be written: {error.strerror}; "
            "set TRTC_CACHE_DIR to a directory that can"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
