"""A step graph becomes kernel calls, node by node; layout changes become views."""

from __future__ import annotations

import onnx_ir as ir

from trtc.errors import BuildError
from trtc.targets.cpu.handlers import HANDLERS
from trtc.targets.cpu.lowering import Lowering, LoweringOptions, refused
from trtc.targets.cpu.program import Program


def lower_graph(model: ir.Model, options: LoweringOptions) -> Program:
    """Emit every node. Raises BuildError naming the first operator and node that the target cannot run."""
    lowering = Lowering(model, options)
    for node in model.graph:
        handler = HANDLERS.get((node.domain, node.op_type))
        if handler is None:
            known = ", ".join(sorted(op_type for _, op_type in HANDLERS))
            raise refused(node, "there is no kernel for it", f"express it with {known}")
        lowering.visit(node, handler)
    if not lowering.has_logits():
        raise BuildError("no node of the graph computes the logits")
    return lowering.program
