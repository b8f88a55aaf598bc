"""Linear layers: y = x W^T + b with the weight in Hugging Face's [out, in] order, divided among ranks.

A column-parallel layer computes some of the output channels on each rank; a row-parallel one reads some of the input
channels and adds up what all ranks computed. On a single rank both are plain linear layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from trtc.checkpoint.weight_map import WeightMap
from trtc.graph import ops
from trtc.graph.builder import GraphBuilder, LazyWeight
from trtc.graph.shapes import value_type
from trtc.graph.shard import Channels
from trtc.graph.weight_slices import take_columns, take_rows


def columns(x: ir.Value) -> int:
    """Number of columns of a [rows, columns] value."""
    return int(value_type(x).shape[-1])


def column_parallel(
    g: GraphBuilder,
    w: WeightMap,
    x: ir.Value,
    prefix: str,
    outputs: Sequence[Channels],
    *,
    bias: bool = False,
    transpose: bool = False,
) -> ir.Value:
    """x float [rows, in], the same on every rank -> float [rows, this rank's channels of each of ``outputs``].

    Reads ``<prefix>.weight`` [all outputs, in] and, if ``bias``, ``<prefix>.bias``. ``transpose``: the checkpoint
    stores [in, out], as GPT-2's Conv1D does. The node is named by the prefix's last part.
    """
    total = sum(part.total for part in outputs)
    rows, first = [], 0
    for part in outputs:
        own = part.of(g.shard)
        rows.append(range(first + own.start, first + own.stop))
        first += part.total
    weight = take_rows(w.take(f"{prefix}.weight", (total, columns(x)), transpose=transpose), _joined(rows))
    bias_weight = take_rows(w.take(f"{prefix}.bias", (total,)), _joined(rows)) if bias else None
    return _gemm(g, x, weight, bias_weight, prefix)


def row_parallel(
    g: GraphBuilder,
    w: WeightMap,
    x: ir.Value,
    prefix: str,
    inputs: Channels,
    out: int,
    *,
    bias: bool = False,
    transpose: bool = False,
) -> ir.Value:
    """x float [rows, this rank's channels of ``inputs``] -> float [rows, out], the same on every rank.

    Reads ``<prefix>.weight`` [out, all inputs] and, if ``bias``, ``<prefix>.bias``, which the first rank adds.
    """
    weight = take_columns(w.take(f"{prefix}.weight", (out, inputs.total), transpose=transpose), inputs.of(g.shard))
    bias_weight = w.take(f"{prefix}.bias", (out,)) if bias else None
    y = _gemm(g, x, weight, bias_weight if g.shard.rank == 0 else None, prefix)
    return all_reduce(g, y, f"{prefix.rpartition('.')[2]}.sum")


def all_reduce(g: GraphBuilder, x: ir.Value, name: str) -> ir.Value:
    """The sum of every rank's x."""
    return x if g.shard.whole else g.op("AllReduce", x, domain=ops.DOMAIN, name=name)


def _joined(ranges: Sequence[range]) -> list[range]:
    """The same rows, neighbouring ranges made one."""
    joined: list[range] = []
    for run in ranges:
        if joined and joined[-1].stop == run.start:
            joined[-1] = range(joined[-1].start, run.stop)
        else:
            joined.append(run)
    return joined


def _gemm(g: GraphBuilder, x: ir.Value, weight: LazyWeight, bias: LazyWeight | None, prefix: str) -> ir.Value:
    inputs = [x, g.weight(weight)] if bias is None else [x, g.weight(weight), g.weight(bias)]
    return g.op("Gemm", *inputs, transB=1, name=prefix.rpartition(".")[2])
