"""Save the graph of a phase as an ONNX file that onnx and Netron open, without reading the model's weights.

Small initializers are in the file. Larger ones become inputs of the same name, type and shape, so a dump of any model
takes a moment and a few hundred kilobytes.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from trtc.errors import BuildError

EMBED_BYTES = 16 << 10  # an initializer up to this size is written into the file


def save_graph(model: ir.Model, path: Path) -> None:
    """Write ``model``, which is not changed, to ``path``. Raises BuildError when the file cannot be written."""
    graph = model.graph.clone()
    for name, value in list(graph.initializers.items()):
        assert value.const_value is not None
        if value.const_value.nbytes > EMBED_BYTES:
            del graph.initializers[name]
            value.const_value = None
            graph.inputs.append(value)
    copy = ir.Model(graph, ir_version=model.ir_version, producer_name=model.producer_name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(ir.to_proto(copy), path)
    except OSError as error:
        raise BuildError(f"cannot write the graph to {path}: {error.strerror or error}") from error
