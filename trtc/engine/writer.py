"""Writing an engine directory so that a crash, a kill or a full disk never leaves half an engine."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trtc.checkpoint.hf_directory import TOKENIZER_FILES
from trtc.checkpoint.hf_fields import Fields
from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.manifest import (
    MANIFEST_NAME,
    FileEntry,
    GenerationDefaults,
    Limits,
    Manifest,
    Memory,
    Provenance,
    RankEntry,
)
from trtc.errors import BuildError

if TYPE_CHECKING:
    from trtc.targets.base import Artifact

_OWN_FILE = re.compile("|".join((*map(re.escape, (MANIFEST_NAME, *TOKENIZER_FILES)), r"rank\d+\.engine")))


@dataclass
class EngineDraft:
    """An engine in the making. Put every file into ``directory``, then ``seal`` it."""

    directory: Path
    sealed: bool = False

    def rank_path(self, rank: int = 0) -> Path:
        return self.directory / f"rank{rank}.engine"

    def seal(
        self,
        *,
        artifact: Artifact,
        model_config: ModelConfig,
        build_config: BuildConfig,
        source: str,
        fingerprint: str,
    ) -> Manifest:
        """Write engine.json over the files that are there now."""
        facts = artifact.facts
        manifest = Manifest(
            target=build_config.target,
            required_isa=artifact.required_isa,
            model=model_config,
            build_config=build_config,
            precision=artifact.precision,
            memory=Memory(
                weight_bytes=artifact.weight_bytes,
                weight_bytes_by_group=artifact.weight_bytes_by_group,
                arena_bytes=facts.arena_bytes,
                arena_bytes_without_reuse=artifact.arena_bytes_without_reuse,
                logits_bytes=4 * facts.max_logit_rows * facts.vocab_size,
                kv_bytes_per_token=facts.kv_bytes_per_block // facts.tokens_per_block,
            ),
            limits=Limits(**{name: getattr(facts, name) for name in Limits.model_fields}),
            provenance=Provenance(
                source=source,
                fingerprint=fingerprint,
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                trtc_version=_version(),
            ),
            generation=_generation_defaults(self.directory, model_config),
            tensorrt=artifact.tensorrt,
            ranks=(RankEntry(name=artifact.path.name, bytes=artifact.bytes, engine_hash=artifact.engine_hash),),
            files=tuple(
                FileEntry(name=path.name, bytes=path.stat().st_size, sha256=_sha256(path))
                for path in sorted(self.directory.iterdir())
                if path != artifact.path and path.name != MANIFEST_NAME
            ),
        )
        manifest.save(self.directory)
        self.sealed = True
        return manifest


@contextmanager
def write_engine(output: str | Path) -> Iterator[EngineDraft]:
    """``with write_engine(output) as draft:`` the engine appears at ``output`` when the block ends, or not at all.

    An existing engine is replaced in one step; where ``output`` is a symbolic link, in the directory it points to.
    Raises BuildError when ``output`` holds anything else, cannot be written, or the disk is full.
    """
    target = Path(output).absolute()
    target = target.resolve() if target.is_symlink() else target
    _check_output(target)
    _remove_abandoned(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked_draft(target) as directory:
            draft = EngineDraft(directory)
            yield draft
            assert draft.sealed, "the engine was not sealed"
            _sync(directory)
            _put_in_place(directory, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BuildError(f"cannot write the engine {target}: {reason}; nothing was left behind") from error


@contextmanager
def _locked_draft(target: Path) -> Iterator[Path]:
    """A new directory beside ``target``, locked as long as this process lives; whatever has its name at the end goes.

    The lock is on the directory itself: a build killed at any moment, even while it puts the engine in place, leaves a
    draft that the next build can tell from one in the making.
    """
    directory = target.with_name(_draft_prefix(target) + secrets.token_hex(8))
    lock: int | None = None
    try:  # from before the directory is there: Ctrl-C may come between any two lines
        directory.mkdir()
        lock = os.open(directory, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory.chmod(0o755)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _draft_prefix(target: Path) -> str:
    return f".{target.name}.building-"


def _check_output(target: Path) -> None:
    """Only what a build wrote may be replaced."""
    if target.exists() and not target.is_dir():
        raise BuildError(f"{target} is a file; choose a directory for the engine")
    there = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if there and MANIFEST_NAME not in there:
        raise BuildError(f"{target} exists and is not an engine; choose another output or remove it")
    foreign = sorted(name for name in there if not _OWN_FILE.fullmatch(name))
    if foreign:
        raise BuildError(
            f"{target} holds {foreign[0]}, which is no part of an engine and would be lost; "
            "move it, or choose another output"
        )


def _remove_abandoned(target: Path) -> None:
    """Drafts of builds that were killed: nobody holds their lock."""
    for draft in target.parent.glob(_glob_escape(_draft_prefix(target)) + "*"):
        try:
            lock = os.open(draft, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(draft, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)


def _glob_escape(text: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def _sync(directory: Path) -> None:
    for path in [*directory.iterdir(), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_in_place(draft: Path, target: Path) -> None:
    """Rename, or exchange with the engine that is there; what was there ends up at ``draft`` and is removed."""
    if target.exists() and any(target.iterdir()):
        if not _exchange(draft, target):
            aside = draft.with_name(draft.name + "-old")
            target.rename(aside)
            draft.rename(target)
            shutil.rmtree(aside, ignore_errors=True)
    else:
        draft.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two directories atomically (Linux renameat2); False where system or file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    at_cwd, exchange = -100, 2
    return bool(rename(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), exchange) == 0)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version() -> str:
    try:
        return importlib.metadata.version("trtc")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def _generation_defaults(directory: Path, config: ModelConfig) -> GenerationDefaults:
    """The model's special tokens, joined with what generation_config.json adds. End tokens beyond the vocabulary, which
    no output can hold, are left out. Raises ConfigError for a field of another kind than transformers writes."""
    path = directory / "generation_config.json"
    fields = Fields(json.loads(path.read_bytes()) if path.is_file() else {}, path.name)
    eos = dict.fromkeys((*config.eos_token_ids, *fields.token_ids("eos_token_id")))
    numbers = ("temperature", "top_p", "min_p", "repetition_penalty")
    return GenerationDefaults(
        bos_token_id=config.bos_token_id,
        eos_token_ids=tuple(token for token in eos if token < config.vocab_size),
        pad_token_id=config.pad_token_id,
        do_sample=None if fields.get("do_sample") is None else fields.flag("do_sample", False),
        top_k=fields.optional_integer("top_k"),
        **{name: fields.number(name) for name in numbers if fields.get(name) is not None},
    )
