"""From a job to a plan file: network, profiles, builder. Runs in the building process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import onnx_ir as ir

from trtc.engine.tensorrt_facts import BindingFacts, PlanFacts, ProfileFacts
from trtc.graph.shapes import value_type
from trtc.targets.tensorrt import plugin
from trtc.targets.tensorrt.attention import attention_layers
from trtc.targets.tensorrt.attention_layers import parse_plugins
from trtc.targets.tensorrt.flavour import FLAVOURS, Module
from trtc.targets.tensorrt.handlers import build_nodes
from trtc.targets.tensorrt.job import WEIGHTS, Job
from trtc.targets.tensorrt.log import Log
from trtc.targets.tensorrt.network import NetworkBuilder, NetworkOptions
from trtc.targets.tensorrt.plugin import PluginFields
from trtc.targets.tensorrt.profiles import profile_ranges, shapes_of
from trtc.targets.tensorrt.weight_file import WeightFile

Report = Callable[[str, int, int], None]  # what, done, total


class JobNetwork:
    """TensorRT, a builder and the network of a job, with all that must live as long."""

    def __init__(self, job: Job, model: ir.Model, folder: Path) -> None:
        """Raises BuildError naming the layer or binding that TensorRT refused."""
        flavour = FLAVOURS[job.flavour]
        self.trt = trt = flavour.load()
        self.log = log = Log(trt)
        self.creator = plugin.register(trt)
        self.builder = _made(trt.Builder(log.logger), log, "a builder")
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.network = _made(self.builder.create_network(flags), log, "a network")
        self.weights = WeightFile(folder / WEIGHTS, list(job.weights))
        plugins = [
            (layer, PluginFields(layer.index, layer.shape, job.sm, job.workspace_rows, job.kernels[layer.index]))
            for layer in attention_layers(model, job.limits.tokens_per_block, job.dtype)
        ]
        options = NetworkOptions(flavour, job.dtype, self.creator.make)
        self.layers = net = NetworkBuilder(trt, self.network, log, options, model, self.weights)
        net.attention = {layer.node: (layer, fields) for layer, fields in plugins}
        if not flavour.adds_plugins:
            net.plugin_layers = parse_plugins(trt, self.network, log, [fields for _, fields in plugins], job.dtype)
        net.add_inputs()
        build_nodes(net, model)
        net.mark_outputs(model.graph.outputs)


def build_plan(job: Job, model: ir.Model, folder: Path, report: Report) -> PlanFacts:
    """Write ``job.plan``. Raises BuildError naming the layer or binding that TensorRT refused, and OSError."""
    made = JobNetwork(job, model, folder)
    trt, log, builder, network = made.trt, made.log, made.builder, made.network
    config = _made(builder.create_builder_config(), log, "a builder configuration")
    _configure(trt, config, job, log)
    profiles = _add_profiles(builder, config, network, job, model, log)
    config.progress_monitor = monitor = _monitor(trt, report)
    digest = _write_plan(trt, builder, network, config, job.plan, log)
    del monitor
    return PlanFacts(
        flavour=job.flavour,
        version=str(trt.__version__),
        plan_hash=digest,
        layers=network.num_layers,
        bindings=tuple(_bindings(trt, network)),
        profiles=profiles,
    )


def _made(thing: Any, log: Log, what: str) -> Any:
    if thing is None:
        raise log.error(None, f"it makes no {what}")
    return thing


def _configure(trt: Module, config: Any, job: Job, log: Log) -> None:
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    if hasattr(config, "num_compute_capabilities"):
        config.num_compute_capabilities = 1
        if not config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{job.sm}"), 0):
            raise log.error(f"for sm {job.sm}", "the compute capability was refused")
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    log.check(f"for sm {job.sm}")


def _add_profiles(
    builder: Any, config: Any, network: Any, job: Job, model: ir.Model, log: Log
) -> tuple[ProfileFacts, ...]:
    """One for decode steps and one for mixed ones, in that order."""
    types = {value.name: value_type(value) for value in model.graph.inputs}
    inputs = [network.get_input(index).name for index in range(network.num_inputs)]
    pools = [kind.shape for name, kind in types.items() if name in inputs and len(kind.shape) == 5]
    largest = max(2 * int(heads) * int(size) * int(dim) for _, _, heads, size, dim in pools)
    facts = []
    for name, ranges in profile_ranges(job.limits, largest).items():
        profile = _made(builder.create_optimization_profile(), log, f"the profile {name}")
        shapes = {}
        for binding in inputs:
            least, best, most = shapes_of(types[binding].shape, ranges)
            profile.set_shape(binding, least, best, most)
            shapes[binding] = (least, best, most)
        if config.add_optimization_profile(profile) < 0:
            raise log.error(f"the profile {name}", "it was refused")
        log.check(f"the profile {name}")
        facts.append(ProfileFacts(name=name, shapes=shapes))
    return tuple(facts)


def _bindings(trt: Module, network: Any) -> list[BindingFacts]:
    names = {trt.int32: "int32", trt.float32: "float32", trt.float16: "float16", trt.bfloat16: "bfloat16"}
    tensors = [("input", network.get_input(i)) for i in range(network.num_inputs)]
    tensors += [("output", network.get_output(i)) for i in range(network.num_outputs)]
    return [BindingFacts(name=t.name, kind=kind, dtype=names[t.dtype], shape=tuple(t.shape)) for kind, t in tensors]


def _write_plan(trt: Module, builder: Any, network: Any, config: Any, path: Path, log: Log) -> str:
    """Stream the plan to its file and return its SHA-256."""
    with path.open("wb") as file:
        writer = _stream_writer(trt, file)
        built = builder.build_serialized_network_to_stream(network, config, writer)
        if writer.problem is not None:
            raise writer.problem
    if not built or path.stat().st_size == 0:
        raise log.error(None, "the builder gave no plan and no reason")
    log.check()
    digest: str = writer.digest.hexdigest()
    return digest


def _stream_writer(trt: Module, file: BinaryIO) -> Any:
    class Writer(trt.IStreamWriter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.digest = hashlib.sha256()
            self.problem: OSError | None = None

        def write(self, data: bytes) -> int:
            try:
                file.write(data)
            except OSError as error:  # must not cross TensorRT's C++
                self.problem = error
                return 0
            self.digest.update(data)
            return len(data)

    return Writer()


def _monitor(trt: Module, report: Report) -> Any:
    """Reports the steps of the builder's outermost phase."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.phases: dict[str, int] = {}

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            if not parent:
                self.phases[phase] = steps
                report(phase, 0, steps)

        def step_complete(self, phase: str, step: int) -> bool:
            if phase in self.phases:
                report(phase, min(step + 1, self.phases[phase]), self.phases[phase])
            return True

        def phase_finish(self, phase: str) -> None:
            if phase in self.phases:
                report(phase, self.phases[phase], self.phases[phase])

    return Monitor()
