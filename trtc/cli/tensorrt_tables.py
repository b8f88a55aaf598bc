"""What ``trtc inspect`` shows of a TensorRT plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtc.cli.terminal import human_bytes, pairs_table

if TYPE_CHECKING:
    from rich.table import Table

    from trtc.engine.tensorrt_facts import BindingFacts, KernelFacts, ProfileFacts, Shape, TensorRtFacts


def needed_gpu(facts: TensorRtFacts) -> str:
    """The machine that can run the plan."""
    return f"a GPU of compute capability {facts.sm // 10}.{facts.sm % 10} and {facts.flavour} {facts.version}"


def tensorrt_tables(facts: TensorRtFacts) -> list[Table]:
    plan = [
        ("built with", f"{facts.flavour} {facts.version} for sm {facts.sm}"),
        ("layers", str(facts.layers)),
        ("plugin", f"{facts.plugin}, {facts.plugin_layers} layers"),
        *[(f"profile {index}", _profile(profile)) for index, profile in enumerate(facts.profiles)],
    ]
    return [
        pairs_table("Plan", plan),
        pairs_table("Kernels", [(kernel.role, _kernel(kernel)) for kernel in facts.kernels] or [("none", "")]),
        pairs_table("Bindings", [(binding.name, _binding(binding)) for binding in _few(facts.bindings)]),
    ]


def _profile(profile: ProfileFacts) -> str:
    rows, sequences = profile.shapes["input_ids"], profile.shapes["context_lens"]
    logits = profile.shapes["logit_rows"]
    return (
        f"{profile.name}: {rows[0][0]} to {rows[2][0]} tokens of {sequences[0][0]} to {sequences[2][0]} sequences, "
        f"{logits[0][0]} to {logits[2][0]} rows of logits"
    )


def _kernel(kernel: KernelFacts) -> str:
    layers = (
        f"layers {kernel.layers[0]} to {kernel.layers[-1]}" if len(kernel.layers) > 1 else f"layer {kernel.layers[0]}"
    )
    spills = f", {kernel.spill_bytes} bytes spilled" if kernel.spill_bytes else ""
    return (
        f"{layers}: {kernel.num_warps} warps, {kernel.registers} registers a thread{spills}, "
        f"{human_bytes(kernel.shared_bytes)} shared, code {human_bytes(kernel.cubin_bytes)}"
    )


def _few(bindings: tuple[BindingFacts, ...]) -> list[BindingFacts]:
    """All but the KV caches of layers after the first: they look alike."""
    return [b for b in bindings if not b.name.startswith("kv_cache.") or b.name.split(".")[1] == "0"]


def _binding(binding: BindingFacts) -> str:
    return f"{binding.kind} {binding.dtype} {_shape(binding.shape)}"


def _shape(shape: Shape) -> str:
    return "[" + ", ".join("any" if size < 0 else str(size) for size in shape) + "]"
