"""How a graph that the TensorRT targets cannot build is refused."""

from __future__ import annotations

import onnx_ir as ir

from trtc.errors import BuildError


def refused(node: ir.Node, problem: str, remedy: str) -> BuildError:
    return BuildError(f"the TensorRT targets cannot build {node.op_type} {node.name!r}: {problem}; {remedy}")
