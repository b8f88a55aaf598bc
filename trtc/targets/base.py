"""What a target is: it turns one rank's graph into a file that its runtime executes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.plan import ModelFacts
from trtc.errors import BuildError

if TYPE_CHECKING:
    import onnx_ir as ir

Progress = Callable[[str, int, int], None]  # what is being written, done, total


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


class Target(Protocol):
    """A kind of engine."""

    name: str

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


def get_target(name: str) -> Target:
    """The target of that name. Raises BuildError listing the known ones."""
    if name == "cpu":
        from trtc.targets.cpu.target import CpuTarget

        return CpuTarget()
    raise BuildError(f"unknown target {name!r}; known targets: cpu")
