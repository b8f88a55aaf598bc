"""``open_engine``: everything about an engine directory that can be checked without reading its weights."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtc.engine.manifest import FileEntry, Manifest, RankEntry, load_manifest
from trtc.engine.plan import Plan, PlanFile, open_plan
from trtc.errors import EngineError

_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class Engine:
    """An opened engine directory. ``plan_files`` has one per rank; none for TensorRT, whose plans it alone reads."""

    directory: Path
    manifest: Manifest
    plan_files: tuple[PlanFile, ...]

    @property
    def runs_here(self) -> bool:
        """Whether this build of trtc has a backend for the engine."""
        from trtc import _core

        return self.manifest.tensorrt is None or self.manifest.tensorrt.flavour in _core.tensorrt_runtimes()

    def require_backend(self) -> None:
        """Raises EngineError when it has none."""
        if self.manifest.tensorrt is not None and not self.runs_here:
            kind = f"{self.manifest.target} engine for sm {self.manifest.tensorrt.sm}"
            raise EngineError(
                f"{self.directory} is a {kind}, and this build of trtc has no TensorRT backend to run it; "
                "build the model with target cpu to run it here"
            )

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The decoded plans; running an engine does not need them."""
        return tuple(file.decode() for file in self.plan_files)

    def verify_weights(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Hash every weight. ``progress(bytes done, bytes in all)``. Raises EngineError naming the first bad one.

        TensorRT's plans are hashed as a whole.
        """
        if self.manifest.tensorrt is not None:
            for rank in self.manifest.ranks:
                _check_plan_hash(self.directory, rank, progress or _ignore)
            return
        total = sum(plan.weight_bytes for plan in self.plans)
        done = 0
        for rank, plan in zip(self.manifest.ranks, self.plans, strict=True):
            path = self.directory / rank.name
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for weight in plan.weights:
                    with memoryview(data) as view, view[weight.offset : weight.offset + weight.size] as blob:
                        digest = hashlib.sha256(blob).digest()
                    if digest != weight.sha256:
                        raise EngineError(
                            f"{path}: weight {weight.name} is damaged (its SHA-256 does not match); "
                            "copy or build the engine again"
                        )
                    done += weight.size
                    if progress is not None:
                        progress(done, total)


def open_engine(path: str | Path) -> Engine:
    """Check manifest, text files and plan of an engine directory.

    Raises EngineError: no engine, edited manifest, missing or altered file, other format version, truncated file.
    """
    directory = Path(path)
    if not directory.is_dir():
        kind = "is not a directory" if directory.exists() else "does not exist"
        raise EngineError(f"{directory} {kind}; pass an engine directory made by `trtc build`")
    manifest = load_manifest(directory)
    for entry in manifest.files:
        _check_file(directory, entry)
    if manifest.target == "cpu":
        return Engine(directory, manifest, tuple(_check_rank(directory, rank) for rank in manifest.ranks))
    if manifest.tensorrt is None:
        raise EngineError(f"{directory} has target {manifest.target} and no facts of it; build the engine again")
    for rank in manifest.ranks:
        _check_size(directory / rank.name, rank.bytes)
    return Engine(directory, manifest, ())


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise EngineError(f"{path} is missing; copy or build the engine again") from None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error
    if size != expected:
        raise EngineError(f"{path} has {size} bytes, expected {expected}: it was changed; build the engine again")


def _check_file(directory: Path, entry: FileEntry) -> None:
    path = directory / entry.name
    _check_size(path, entry.bytes)
    if hashlib.sha256(_read(path)).hexdigest() != entry.sha256:
        raise EngineError(f"{path} was changed: its SHA-256 does not match the manifest; build the engine again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error


def _check_rank(directory: Path, rank: RankEntry) -> PlanFile:
    path = directory / rank.name
    _check_size(path, rank.bytes)
    try:
        plan = open_plan(path)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error
    if plan.engine_hash != rank.engine_hash:
        raise EngineError(f"{path} belongs to another engine than its manifest; copy or build the engine again")
    return plan


def _check_plan_hash(directory: Path, rank: RankEntry, progress: Callable[[int, int], None]) -> None:
    path = directory / rank.name
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                progress(done, rank.bytes)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != rank.engine_hash:
        raise EngineError(f"{path} is damaged (its SHA-256 does not match); copy or build the engine again")


def _ignore(done: int, total: int) -> None:
    pass
