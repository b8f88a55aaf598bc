"""The whole compile path: checkpoint -> recipe -> graph -> passes -> target -> engine directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

import model_recipes
from trtc.checkpoint.hf_config import model_config_from_hf
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.weight_map import WeightMap
from trtc.config import BuildConfig
from trtc.engine.writer import write_engine
from trtc.errors import ConfigError
from trtc.memory import peak_rss_bytes
from trtc.passes.base import PassReport
from trtc.passes.dump import save_graph
from trtc.passes.pipeline import PHASE_NAMES, run_pipeline
from trtc.targets.base import get_target

DEFAULT_MAX_SEQ_LEN = 8192  # tokens, where the model allows more and the user does not say

Progress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True)
class BuildReport:
    """What a build made and took. Sizes in bytes."""

    path: Path
    target: str
    seconds: dict[str, float]  # per stage, in order
    engine_bytes: int  # every file of the directory
    weight_bytes: int
    arena_bytes: int
    kv_bytes_per_token: int
    peak_rss_bytes: int  # of this process so far, and of the one that built a TensorRT plan
    passes: tuple[PassReport, ...]


def build_engine(
    model: str | Path,
    output: str | Path,
    config: BuildConfig,
    *,
    progress: Progress | None = None,
    dump_graph: Mapping[str, Path] | None = None,
) -> BuildReport:
    """Compile ``model`` (directory, .gguf file or hub id) into the engine directory ``output``.

    ``dump_graph`` maps phases of the pipeline to ONNX files to write. The engine appears whole or not at all; an engine
    that is already at ``output`` is replaced, anything else there is refused.

    Raises ConfigError, CheckpointError, RecipeError or BuildError; each says what to change.
    """
    dumps = dict(dump_graph or {})
    _check_settings(config, dumps)
    target = get_target(config.target)
    target.check(config)
    stages = _Stages(progress or _ignore)
    with write_engine(output) as draft:
        with stages.run("read checkpoint"):
            checkpoint = open_checkpoint(model, progress=stages.progress)
            model_config = model_config_from_hf(checkpoint.config)
            config = resolve_limits(config, model_config)
            checkpoint.write_tokenizer(draft.directory)
        with stages.run("build graph"):
            weights = WeightMap(checkpoint.tensors, model_config.model_type)
            graph = model_recipes.build_graph(model_config, weights, config.tokens_per_block, config.max_seq_len)
        with stages.run("run passes"):
            reports = run_pipeline(graph, config, lambda phase, model: _dump(dumps, phase, model))
        with stages.run(target.stage):

            def lowered(stage: str, done: int, total: int) -> None:
                checkpoint.release_pages()
                stages.progress(stage, done, total)

            artifact = target.lower(graph, model_config, config, draft.rank_path(), lowered)
        with stages.run("write engine"):
            manifest = draft.seal(
                artifact=artifact,
                model_config=model_config,
                build_config=config,
                source=checkpoint.source,
                fingerprint=checkpoint.fingerprint,
            )
    path = Path(output)
    return BuildReport(
        path=path,
        target=config.target,
        seconds=stages.seconds,
        engine_bytes=sum(file.stat().st_size for file in path.iterdir()),
        weight_bytes=manifest.memory.weight_bytes,
        arena_bytes=manifest.memory.arena_bytes,
        kv_bytes_per_token=manifest.memory.kv_bytes_per_token,
        peak_rss_bytes=peak_rss_bytes() + artifact.child_peak_rss_bytes,
        passes=tuple(reports),
    )


def resolve_limits(config: BuildConfig, model: ModelConfig) -> BuildConfig:
    """``config`` with max_seq_len filled in. Raises ConfigError when the model has fewer positions than asked for."""
    positions = model.max_position_embeddings
    if config.max_seq_len is None:
        return config.model_copy(update={"max_seq_len": min(positions, DEFAULT_MAX_SEQ_LEN)})
    if config.max_seq_len > positions:
        raise ConfigError(
            f"max_seq_len is {config.max_seq_len}, but the model has {positions} positions; ask for at most {positions}"
        )
    return config


def _check_settings(config: BuildConfig, dumps: Mapping[str, Path]) -> None:
    if config.mapping.tp_size > 1:
        raise ConfigError(
            f"tp_size is {config.mapping.tp_size}, but trtc cannot split a model over several ranks yet; use tp_size 1"
        )
    for phase in dumps:
        if phase not in PHASE_NAMES:
            known = ", ".join(PHASE_NAMES)
            raise ConfigError(f"dump_graph names {phase!r}, which is no phase of the pipeline; phases: {known}")


def _dump(dumps: Mapping[str, Path], phase: str, model: ir.Model) -> None:
    if phase in dumps:
        save_graph(model, dumps[phase])


@dataclass
class _Stages:
    """Measures stages and reports each one's beginning and end."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def run(self, stage: str) -> Iterator[None]:
        self.progress(stage, 0, 1)
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start
        self.progress(stage, 1, 1)


def _ignore(stage: str, done: int, total: int) -> None:
    pass
