"""Remove nodes and initializers that no output needs."""

from __future__ import annotations

import onnx_ir as ir

from trtc.passes.base import Pass, PassReport


class DeadCodePass(Pass):
    """Walks the nodes backwards, so that one run is enough. The step's inputs stay even when nothing reads them."""

    def apply(self, model: ir.Model) -> PassReport:
        removed = 0
        graph = model.graph
        for node in reversed(graph):
            if not _is_used(node):
                graph.remove(node, safe=True)
                removed += 1
        for name in [name for name, value in graph.initializers.items() if not value.uses()]:
            del graph.initializers[name]
            removed += 1
        return PassReport(self.name, removed)

    def ensures(self, model: ir.Model) -> str | None:
        for node in model.graph:
            if not _is_used(node):
                return f"nothing uses node {node.name!r}"
        return None


def _is_used(node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs)
