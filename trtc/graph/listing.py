"""Readable views of a graph: rows for ``trtc inspect``, text for dumps, ONNX files for Netron."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir

from trtc.errors import GraphError
from trtc.graph.shapes import value_type


def graph_listing(model: ir.Model) -> list[dict[str, Any]]:
    """One row per node in execution order.

    Keys: ``index``, ``name``, ``op`` (with its domain unless standard), ``inputs`` and ``outputs`` (each
    ``{"name", "type"}``, type as ``float[tokens, 64]``), ``attributes`` (name to value).
    """
    return [
        {
            "index": index,
            "name": node.name,
            "op": f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
            "inputs": [_described(value) for value in node.inputs],
            "outputs": [_described(value) for value in node.outputs],
            "attributes": {name: attr.value for name, attr in node.attributes.items()},
        }
        for index, node in enumerate(model.graph)
    ]


def format_listing(model: ir.Model) -> str:
    """The listing as text, one node a line: ``name  Op(inputs) {attributes} -> types``."""
    rows = graph_listing(model)
    width = max((len(row["name"]) for row in rows), default=0)
    lines = []
    for row in rows:
        inputs = ", ".join(item["name"] for item in row["inputs"])
        attributes = ", ".join(f"{key}={value}" for key, value in row["attributes"].items())
        types = ", ".join(item["type"] for item in row["outputs"])
        braces = f" {{{attributes}}}" if attributes else ""
        lines.append(f"{row['name']:<{width}}  {row['op']}({inputs}){braces} -> {types}")
    return "\n".join(lines) + "\n"


def save_onnx(model: ir.Model, path: str | Path) -> None:
    """Write the graph as an ONNX file, weights beside it in ``<name>.data``. It opens in Netron."""
    path = Path(path)
    ir.save(model, path, external_data=f"{path.name}.data")


def _described(value: ir.Value | None) -> dict[str, str]:
    if value is None:
        return {"name": "", "type": ""}
    try:
        return {"name": value.name or "", "type": str(value_type(value))}
    except GraphError:
        return {"name": value.name or "", "type": "untyped"}
