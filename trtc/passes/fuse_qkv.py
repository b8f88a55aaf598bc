"""One linear layer for query, key and value: three products over the same rows become one, then a Split."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from trtc.graph.ops import DOMAIN
from trtc.passes.base import RewritePass
from trtc.passes.lazy_weights import add_weight, concat_rows, weight_of
from trtc.passes.rewriting import (
    bias_of,
    insert_before,
    is_op,
    joint_name,
    linear_problem,
    remove_dead,
    sizes,
    unique_name,
)

# What may stand between a projection and the attention: each works on every head alone.
_PER_HEAD = {("", "Reshape"), ("", "RMSNormalization"), ("", "LayerNormalization"), (DOMAIN, "RotaryEmbedding")}


class QkvMatch(NamedTuple):
    """The projections of one attention, as [query, key, value]."""

    attention: ir.Node
    projections: tuple[ir.Node, ir.Node, ir.Node]


class FuseQkvPass(RewritePass[QkvMatch]):
    """``Gemm(x, Wq), Gemm(x, Wk), Gemm(x, Wv)`` -> ``Split(Gemm(x, [Wq; Wk; Wv]), axis=1)``.

    The weights [out, in] and biases [out] are joined lazily, row block after row block.
    """

    def pattern(self, node: ir.Node) -> QkvMatch | None:
        if not is_op(node, "PagedAttention", DOMAIN):
            return None
        query, key, value = (_projection(node.inputs[i]) for i in range(3))
        if query is None or key is None or value is None or query is key or key is value or query is value:
            return None
        return QkvMatch(node, (query, key, value))

    def check(self, match: QkvMatch) -> str | None:
        query = match.projections[0]
        for gemm in match.projections:
            if gemm.inputs[0] is not query.inputs[0]:
                return f"{query.name} and {gemm.name} have different inputs"
            if problem := linear_problem(gemm):
                return problem
            if gemm.outputs[0].is_graph_output():
                return f"{gemm.name} is an output of the graph"
            if (bias_of(gemm) is None) != (bias_of(query) is None):
                return f"only some of {', '.join(g.name or '' for g in match.projections)} have a bias"
        return None

    def rewrite(self, graph: ir.Graph, match: QkvMatch) -> None:
        gemms = match.projections
        name = joint_name(graph, [gemm.name for gemm in gemms], "qkv_proj")
        first = next(node for node in graph if node in gemms)
        weights = [gemm.inputs[1] for gemm in gemms]
        biases = [bias_of(gemm) for gemm in gemms]
        inputs = [gemms[0].inputs[0], add_weight(graph, concat_rows(weights), f"{name}.weight")]
        if biases[0] is not None:
            inputs.append(add_weight(graph, concat_rows(biases), f"{name}.bias"))
        joined = insert_before(first, "Gemm", inputs, {"transB": 1}, name=name)
        rows = [weight_of(weight).shape[0] for weight in weights]
        split = insert_before(
            first,
            "Split",
            [joined.outputs[0], sizes(graph, *rows)],
            {"axis": 1},
            name=unique_name(graph, f"{name}.split"),
        )
        for gemm, part in zip(gemms, split.outputs, strict=True):
            gemm.outputs[0].replace_all_uses_with(part)
        remove_dead(graph, gemms)


def _projection(value: ir.Value | None) -> ir.Node | None:
    """The Gemm that ``value`` comes from through per-head operators alone."""
    node = value.producer() if value is not None else None
    while node is not None and (node.domain, node.op_type) in _PER_HEAD:
        source = node.inputs[0]
        node = source.producer() if source is not None else None
    return node if is_op(node, "Gemm") else None
