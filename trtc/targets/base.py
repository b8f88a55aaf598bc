"""What a target is: it turns one rank's graph into a file that its runtime executes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.plan import ModelFacts
from trtc.engine.tensorrt_facts import TensorRtFacts
from trtc.errors import BuildError

if TYPE_CHECKING:
    import onnx_ir as ir

Progress = Callable[[str, int, int], None]  # stage, done, total
PACK_WEIGHTS = "pack weights"  # the stage that writes weights

_PROMPT_LOGIT_ROWS = 128  # rows of logits per step when every prompt token's are wanted
_LOGITS_BUDGET = 64 << 20  # bytes; bounds the rows above for large vocabularies


@dataclass(frozen=True)
class Artifact:
    """One rank's file and the facts that the manifest repeats. Sizes in bytes."""

    path: Path
    bytes: int
    engine_hash: str
    facts: ModelFacts
    required_isa: str
    weight_bytes: int
    arena_bytes_without_reuse: int
    weight_bytes_by_group: dict[str, int] = field(default_factory=dict)
    precision: dict[str, str] = field(default_factory=dict)  # layer group -> storage, for people
    tensorrt: TensorRtFacts | None = None
    child_peak_rss_bytes: int = 0  # of a process that did the work


class Target(Protocol):
    """A kind of engine. ``stage`` is what its ``lower`` is called while a build is followed."""

    name: str
    stage: str

    def check(self, config: BuildConfig) -> None:
        """Before any work: raises ConfigError naming the setting that this target cannot have, or BuildError."""
        ...

    def lower(
        self,
        model: ir.Model,
        model_config: ModelConfig,
        config: BuildConfig,
        rank_path: Path,
        progress: Progress | None = None,
    ) -> Artifact:
        """Write the rank file of a graph that has passed the ``clean`` phase.

        Raises BuildError naming operator and node when the target cannot run the graph.
        """
        ...


def max_logit_rows(config: BuildConfig, vocab_size: int) -> int:
    """One row per sequence at least; more for prompt logits while the buffer stays within budget."""
    affordable = _LOGITS_BUDGET // (4 * vocab_size)
    return max(config.max_batch_size, min(config.max_num_tokens, _PROMPT_LOGIT_ROWS, affordable))


def get_target(name: str) -> Target:
    """The target of that name. Raises BuildError listing the known ones."""
    if name == "cpu":
        from trtc.targets.cpu.target import CpuTarget

        return CpuTarget()
    if name in ("tensorrt-rtx", "tensorrt"):
        from trtc.targets.tensorrt.target import TensorRtTarget

        return TensorRtTarget(name)
    raise BuildError(f"unknown target {name!r}; known targets: cpu, tensorrt-rtx, tensorrt")
