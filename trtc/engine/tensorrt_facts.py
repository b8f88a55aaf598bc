"""What an engine's manifest says of its TensorRT plan."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Shape = tuple[int, ...]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BindingFacts(_Facts):
    """An input or output of the plan; -1 is a dimension that the step decides."""

    name: str
    kind: Literal["input", "output"]
    dtype: str
    shape: Shape


class ProfileFacts(_Facts):
    """Least, best and most shape of every input. Profiles count from 0 in the order of the manifest."""

    name: str
    shapes: dict[str, tuple[Shape, Shape, Shape]]


class KernelFacts(_Facts):
    """A compiled kernel in the plan and what it needs of the GPU; of every layer that shares it."""

    role: str
    entry: str
    layers: tuple[int, ...]
    num_warps: int
    shared_bytes: int
    registers: int  # of a thread
    spill_bytes: int
    cubin_bytes: int


class PlanFacts(_Facts):
    """What the process that built the plan knows of it."""

    flavour: str
    version: str  # of TensorRT
    plan_hash: str  # SHA-256
    layers: int  # of the network, before TensorRT fused them
    bindings: tuple[BindingFacts, ...]
    profiles: tuple[ProfileFacts, ...]


class TensorRtFacts(PlanFacts):
    """The same with what it was built for, its plugins and their kernels."""

    sm: int
    plugin: str  # namespace::name and version
    plugin_layers: int
    kernels: tuple[KernelFacts, ...]
