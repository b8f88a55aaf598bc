"""What the building process is told: a folder with the graph, its weights and these settings."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from trtc.passes.dump import save_graph
from trtc.targets.tensorrt.profiles import Limits
from trtc.targets.tensorrt.weight_file import StoredWeight

_PLAIN = ("flavour", "sm", "dtype", "workspace_rows")  # fields that JSON holds as they are
_SETTINGS, _GRAPH, WEIGHTS = "job.json", "graph.onnx", "weights.bin"


@dataclass(frozen=True)
class Job:
    """One engine to build. ``kernels`` are the bundle's bytes for each of the model's layers.

    ``workspace_rows`` is the plugin's field of that name.
    """

    flavour: str
    sm: int
    dtype: str
    limits: Limits
    plan: Path  # to write
    weights: tuple[StoredWeight, ...]
    kernels: dict[int, bytes]
    workspace_rows: int = 0


def save_job(job: Job, model: ir.Model, folder: Path) -> None:
    """Beside the weights, which are in ``folder`` already. Large initializers become inputs of the saved graph."""
    save_graph(model, folder / _GRAPH)
    bundles = list(dict.fromkeys(job.kernels.values()))
    values = {
        **{name: getattr(job, name) for name in _PLAIN},
        "limits": asdict(job.limits),
        "plan": str(job.plan),
        "weights": [entry.as_json() for entry in job.weights],
        "bundles": [base64.b64encode(bundle).decode() for bundle in bundles],
        "kernels": {layer: bundles.index(bundle) for layer, bundle in job.kernels.items()},
    }
    (folder / _SETTINGS).write_text(json.dumps(values), encoding="utf-8")


def load_job(folder: Path) -> tuple[Job, ir.Model]:
    """What ``save_job`` wrote."""
    values = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
    bundles = [base64.b64decode(bundle) for bundle in values.pop("bundles")]
    job = Job(
        **{name: values[name] for name in _PLAIN},
        limits=Limits(**values["limits"]),
        plan=Path(values["plan"]),
        weights=tuple(StoredWeight.from_json(entry) for entry in values["weights"]),
        kernels={int(layer): bundles[index] for layer, index in values["kernels"].items()},
    )
    return job, ir.from_proto(onnx.load(folder / _GRAPH))
