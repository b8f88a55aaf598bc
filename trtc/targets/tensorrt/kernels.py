"""The attention kernels of an engine: compiled once for each shape, before TensorRT starts."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trtc.engine.tensorrt_facts import KernelFacts
from trtc.targets.tensorrt.attention import AttentionLayer, AttentionShape


class KernelBundle(Protocol):
    """The compiled kernels of one shape and SM; trtc.targets.tensorrt.kernel_bundle makes them."""

    @property
    def kernels(self) -> Sequence[Any]: ...

    def to_bytes(self) -> bytes: ...


_MODULE = "trtc.targets.tensorrt.kernel_bundle"

Compile = Callable[[AttentionShape, int], KernelBundle]


def default_compiler() -> Compile:
    """The compiler of plugins/kernels, or one that makes empty bundles where that is not part of trtc."""
    if importlib.util.find_spec(_MODULE) is None:
        return lambda shape, sm: _NoKernels()
    compiler: Compile = importlib.import_module(_MODULE).compile_bundle
    return compiler


class _NoKernels:
    kernels: Sequence[Any] = ()

    def to_bytes(self) -> bytes:
        return b"TRTCKRN1" + bytes(4)


@dataclass(frozen=True)
class LayerKernels:
    """Bundle bytes by number of the model's layer, and the facts of every kernel.

    ``split``: positions of a context that one program walks when several share it; 0 without kernels.
    """

    bundles: dict[int, bytes]
    facts: tuple[KernelFacts, ...]
    split: int


def compile_layers(layers: Sequence[AttentionLayer], sm: int, compile_bundle: Compile) -> LayerKernels:
    """Compile the kernels of every shape once. Raises BuildError for a shape that has none."""
    by_shape: dict[AttentionShape, list[int]] = {}
    for layer in layers:
        by_shape.setdefault(layer.shape, []).append(layer.index)
    bundles: dict[int, bytes] = {}
    facts: list[KernelFacts] = []
    splits: set[int] = set()
    for shape, numbers in by_shape.items():
        bundle = compile_bundle(shape, sm)
        data = bundle.to_bytes()
        bundles.update(dict.fromkeys(numbers, data))
        facts.extend(_facts(kernel, tuple(numbers)) for kernel in bundle.kernels)
        splits |= {kernel.constants["SPLIT"] for kernel in bundle.kernels if "SPLIT" in kernel.constants}
    assert len(splits) <= 1, f"layers split their contexts differently: {splits}"
    return LayerKernels(bundles, tuple(facts), splits.pop() if splits else 0)


def _facts(kernel: Any, layers: tuple[int, ...]) -> KernelFacts:
    return KernelFacts(
        role=kernel.role,
        entry=kernel.entry,
        layers=layers,
        num_warps=kernel.num_warps,
        shared_bytes=kernel.shared_bytes,
        registers=kernel.registers,
        spill_bytes=kernel.spill_bytes,
        cubin_bytes=len(kernel.cubin),
    )
