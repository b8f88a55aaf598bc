"""``engine.json``: what an engine directory holds and what it was made from. Any edit of it is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.tensorrt_facts import TensorRtFacts
from trtc.errors import ConfigError, EngineError

MANIFEST_NAME = "engine.json"
SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Part):
    """A file beside the manifest."""

    name: str
    bytes: int
    sha256: str


class RankEntry(_Part):
    """``rank<N>.engine``: its hash covers the plan, which covers the hash of every weight."""

    name: str
    bytes: int
    engine_hash: str


class Limits(_Part):
    """Counts are tokens, sequences or rows."""

    vocab_size: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_logit_rows: int
    tokens_per_block: int


class Memory(_Part):
    """Bytes. Weights stay in the mapped file; the arena holds the activations of one step."""

    weight_bytes: int
    weight_bytes_by_group: dict[str, int]
    arena_bytes: int
    arena_bytes_without_reuse: int
    logits_bytes: int
    kv_bytes_per_token: int


class Provenance(_Part):
    source: str
    fingerprint: str
    created: str  # ISO 8601, UTC
    trtc_version: str


class GenerationDefaults(_Part):
    """From the checkpoint's config and generation_config.json. None: the checkpoint does not say."""

    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class Manifest(_Part):
    schema_version: Literal[1] = 1
    target: str
    required_isa: str  # lowest instruction set level that runs the engine; sm_<N> for a GPU
    model: ModelConfig
    build_config: BuildConfig
    precision: dict[str, str]  # layer group -> storage, for people
    memory: Memory
    limits: Limits
    provenance: Provenance
    generation: GenerationDefaults
    ranks: tuple[RankEntry, ...] = Field(min_length=1)
    files: tuple[FileEntry, ...]
    tensorrt: TensorRtFacts | None = None  # of engines of the TensorRT targets

    def save(self, directory: Path) -> None:
        """Write engine.json with its checksum."""
        values = self.model_dump(mode="json")
        text = json.dumps({**values, "checksum": _checksum(values)}, indent=2, ensure_ascii=False)
        (directory / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def _checksum(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def load_manifest(directory: Path) -> Manifest:
    """The checked manifest of an engine directory. Raises EngineError saying what is wrong with it."""
    path = directory / MANIFEST_NAME
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise EngineError(f"{directory} is not an engine directory: it has no {MANIFEST_NAME}") from None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{path} is not valid JSON ({error}); build the engine again") from error
    if not isinstance(values, dict):
        raise EngineError(f"{path} holds {type(values).__name__}, expected an object; build the engine again")
    version = values.get("schema_version")
    if version != SCHEMA_VERSION:
        raise EngineError(
            f"{path} has schema version {version!r}, this version of trtc reads {SCHEMA_VERSION}; "
            "build the engine again"
        )
    checksum = values.pop("checksum", None)
    if checksum != _checksum(values):
        raise EngineError(f"{path} was edited or damaged: its checksum does not match; build the engine again")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise EngineError(f"{path}: field {place}: {first['msg']}; build the engine again") from error
    except ConfigError as error:  # in build_config
        raise EngineError(f"{path}: {error}; build the engine again") from error
