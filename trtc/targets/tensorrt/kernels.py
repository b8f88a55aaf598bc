"""The attention kernels of an engine: compiled once for each shape, before TensorRT starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plugins.kernels.shape import AttentionShape
from trtc.engine.tensorrt_facts import KernelFacts
from trtc.errors import BuildError
from trtc.targets.tensorrt.attention import AttentionLayer
from trtc.targets.tensorrt.kernel_bundle import KernelBundle, KernelImage, check_kernels_exist

Compile = Callable[[AttentionShape, int], KernelBundle]


def compile_layers(
    layers: Sequence[AttentionLayer], sm: int, compile_bundle: Compile
) -> tuple[dict[int, bytes], tuple[KernelFacts, ...]]:
    """Bundle bytes by number of the model's layer, and the facts of every kernel.

    Raises BuildError naming the first layer that the kernels do not cover, or why compiling failed.
    """
    by_shape: dict[AttentionShape, list[int]] = {}
    for layer in layers:
        try:
            check_kernels_exist(layer.shape, sm)
        except BuildError as error:
            raise BuildError(f"PagedAttention {layer.node.name!r}: {error}") from error
        by_shape.setdefault(layer.shape, []).append(layer.index)
    bundles: dict[int, bytes] = {}
    facts: list[KernelFacts] = []
    for shape, numbers in by_shape.items():
        bundle = compile_bundle(shape, sm)
        bundles.update(dict.fromkeys(numbers, bundle.to_bytes()))
        facts.extend(_facts(kernel, tuple(numbers)) for kernel in bundle.kernels)
    return bundles, tuple(facts)


def _facts(kernel: KernelImage, layers: tuple[int, ...]) -> KernelFacts:
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
