"""The passes in their order, in named phases. The graph is verified after each phase and may be looked at there.

recipe    what the recipe built, before any pass
fold      constants computed once
fuse      fewer, larger kernels
quantize  integer weights (unless quantization is off)
clean     nothing that no output needs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from trtc.config import BuildConfig, QuantAlgo
from trtc.graph.verify import verify
from trtc.passes.base import Pass, PassReport
from trtc.passes.dead_code import DeadCodePass
from trtc.passes.fold_constants import FoldConstantsPass
from trtc.passes.fuse_add_norm import FuseAddNormPass
from trtc.passes.fuse_gate_up import FuseGateUpPass
from trtc.passes.fuse_qkv import FuseQkvPass
from trtc.passes.quantize_weights import QuantizeWeightsPass

PHASE_NAMES = ("recipe", "fold", "fuse", "quantize", "clean")

OnPhase = Callable[[str, ir.Model], None]


@dataclass(frozen=True)
class Phase:
    """A name and the passes that run under it."""

    name: str
    passes: tuple[Pass, ...]


def phases(config: BuildConfig) -> tuple[Phase, ...]:
    """The phases of a build; one may be empty."""
    quantize = () if config.quant.quant_algo is QuantAlgo.NONE else (QuantizeWeightsPass(config.quant),)
    return (
        Phase("recipe", ()),
        Phase("fold", (FoldConstantsPass(),)),
        Phase("fuse", (FuseQkvPass(), FuseGateUpPass(), FuseAddNormPass())),
        Phase("quantize", quantize),
        Phase("clean", (DeadCodePass(),)),
    )


def run_pipeline(model: ir.Model, config: BuildConfig, on_phase: OnPhase | None = None) -> list[PassReport]:
    """Run every phase on ``model``, in place; ``on_phase(name, model)`` is called after each one's verification.

    Returns what each pass did. Raises GraphError naming the phase or pass at fault.
    """
    reports: list[PassReport] = []
    for phase in phases(config):
        reports.extend(rewrite(model) for rewrite in phase.passes)
        verify(model, phase.name)
        if on_phase is not None:
            on_phase(phase.name, model)
    return reports
