"""Linear layers: y = x W^T + b with the weight in Hugging Face's [out, in] order."""

from __future__ import annotations

import onnx_ir as ir

from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder
from trtc.graph.shapes import value_type


def columns(x: ir.Value) -> int:
    """Number of columns of a [rows, columns] value."""
    return int(value_type(x).shape[-1])


def linear(
    g: GraphBuilder, w: WeightMap, x: ir.Value, prefix: str, out: int, *, bias: bool = False, transpose: bool = False
) -> ir.Value:
    """x float [rows, in] -> float [rows, out] with ``<prefix>.weight`` and, if ``bias``, ``<prefix>.bias``.

    ``transpose``: the checkpoint stores [in, out], as GPT-2's Conv1D does. The node is named by the prefix's last part.
    """
    weight = g.weight(w.take(f"{prefix}.weight", (out, columns(x)), transpose=transpose))
    inputs = [x, weight, g.weight(w.take(f"{prefix}.bias", (out,)))] if bias else [x, weight]
    return g.op("Gemm", *inputs, transB=1, name=prefix.rpartition(".")[2])
