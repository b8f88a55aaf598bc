"""What this machine can build and run: facts, each with a verdict and the piece that is missing.

Looks only: no engine is built, no GPU context is made, and neither tensorrt nor torch is imported.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

Verdict = Literal["ready", "absent", "broken"]


@dataclass(frozen=True)
class Finding:
    """One fact. ``absent`` is a normal state, ``broken`` is something that should work and does not."""

    part: str
    verdict: Verdict
    detail: str
    missing: str = ""  # what to install or change; empty when nothing is


def examine() -> list[Finding]:
    """Everything, in the order people read it."""
    return [
        cpu(),
        memory(),
        building(),
        *gpus(_import_nvml()),
        tensorrt("tensorrt", "needs an NVIDIA GPU to build", "pip install tensorrt"),
        tensorrt("tensorrt-rtx", "needs no GPU to build", "pip install tensorrt-rtx"),
        mpi(),
        triton(),
    ]


def cpu() -> Finding:
    """The processor and the kernels that an engine would get."""
    from trtc import _core
    from trtc.errors import EngineError

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = f"{_processor_name()}, {cores} usable cores"
    try:
        return Finding("CPU", "ready", f"{where}; runs cpu engines with {_core.selected_isa()} kernels")
    except EngineError as error:  # TRTC_CPU_ISA asks for what is not there
        return Finding("CPU", "broken", where, str(error))


def memory() -> Finding:
    """What /proc/meminfo says; a container may allow less."""
    sizes = {}
    for line in _lines(Path("/proc/meminfo")):
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) / (1 << 20)
    if not sizes:
        return Finding("memory", "ready", "unknown: this system has no /proc/meminfo")
    return Finding("memory", "ready", f"{sizes['MemAvailable']:.1f} of {sizes['MemTotal']:.1f} GiB available")


def building() -> Finding:
    """The packages that building needs and serving does not."""
    wanted = {"onnx": "onnx", "onnx_ir": "onnx-ir", "safetensors": "safetensors", "gguf": "gguf"}
    absent = [package for module, package in wanted.items() if find_spec(module) is None]
    if absent:
        return Finding("building", "absent", "runs engines but cannot build them", f"pip install {' '.join(absent)}")
    return Finding("building", "ready", "builds cpu engines for any x86-64 machine")


def gpus(nvml: ModuleType | None) -> list[Finding]:
    """One finding for each NVIDIA GPU, by NVML; one in all where there is none."""
    if nvml is None:
        if not Path("/proc/driver/nvidia").exists():
            return [Finding("GPU", "absent", "no NVIDIA driver; cpu engines need none")]
        return [Finding("GPU", "broken", "a driver is loaded, but nothing to ask it with", "pip install nvidia-ml-py")]
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if not Path("/proc/driver/nvidia").exists():
            return [Finding("GPU", "absent", "no NVIDIA driver; cpu engines need none")]
        return [Finding("GPU", "broken", f"NVML does not answer: {error}", "check the NVIDIA driver with nvidia-smi")]
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        count = nvml.nvmlDeviceGetCount()
        found = [_gpu(nvml, index, driver) for index in range(count)]
    finally:
        nvml.nvmlShutdown()
    return found or [Finding("GPU", "absent", f"driver {driver}, but no GPU is visible")]


def tensorrt(package: str, note: str, install: str) -> Finding:
    """Whether a TensorRT flavour is installed, and which."""
    found = _version(package)
    if found is None:
        return Finding(package, "absent", "not installed", install)
    return Finding(package, "ready", f"{found}, {note}")


def mpi() -> Finding:
    """The library for ranks on several hosts."""
    library, launcher = ctypes.util.find_library("mpi"), shutil.which("mpirun") or shutil.which("mpiexec")
    if library is None or launcher is None:
        return Finding("MPI", "absent", "not installed; only ranks on several hosts need it", "pip install mpich")
    return Finding("MPI", "ready", f"{library}, {launcher}")


def triton() -> Finding:
    """Triton Inference Server, on the path or inside nvidia-pytriton."""
    server = shutil.which("tritonserver")
    spec = find_spec("pytriton")
    if server is None and spec is not None and spec.submodule_search_locations:
        bundled = Path(next(iter(spec.submodule_search_locations)), "tritonserver", "bin", "tritonserver")
        server = str(bundled) if bundled.is_file() else None
    if server is None:
        return Finding("Triton server", "absent", "not installed", "pip install nvidia-pytriton")
    return Finding("Triton server", "ready", server)


def _gpu(nvml: Any, index: int, driver: str) -> Finding:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    sizes = nvml.nvmlDeviceGetMemoryInfo(device)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
    free, total = sizes.free / (1 << 30), sizes.total / (1 << 30)
    detail = [
        _text(nvml.nvmlDeviceGetName(device)),
        f"SM {major}{minor}",
        f"{free:.1f} of {total:.1f} GiB free",
        f"driver {driver}",
        *_links(nvml, device),
    ]
    return Finding(f"GPU {index}", "ready", ", ".join(detail))


def _links(nvml: Any, device: Any) -> Iterator[str]:
    """NVLink and PCIe, as far as the device knows them."""
    active = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += int(nvml.nvmlDeviceGetNvLinkState(device, link) == 1)
        except nvml.NVMLError:
            break
    if active:
        yield f"{active} NVLinks"
    try:
        generation = nvml.nvmlDeviceGetCurrPcieLinkGeneration(device)
        yield f"PCIe {generation} x{nvml.nvmlDeviceGetCurrPcieLinkWidth(device)}"
    except nvml.NVMLError:
        return


def _import_nvml() -> ModuleType | None:
    try:
        import pynvml
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor_name() -> str:
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
