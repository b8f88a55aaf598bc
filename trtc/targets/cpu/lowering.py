"""State of one lowering: which view of which buffer holds each value, and when a buffer may be overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from trtc.engine.format import KvDtype, Rows, WeightFormat
from trtc.errors import BuildError
from trtc.graph import contract
from trtc.graph.ops import DEQUANTIZERS
from trtc.targets.cpu.program import LOGITS_BUFFER, Program, View
from trtc.targets.cpu.weight_spec import WeightSpec, float_matrix, quantized_matrix, rows_f32

_ROWS = {contract.TOKENS: Rows.TOKENS, contract.LOGIT_ROWS: Rows.LOGIT_ROWS}


@dataclass(frozen=True)
class LoweringOptions:
    """What lowering needs of the build's settings."""

    matrix_format: WeightFormat  # of float linear layers
    kv_dtype: KvDtype
    max_seq_len: int


Handler = Callable[["Lowering", ir.Node], None]


class Lowering:
    """What the handlers of handlers.py read and write."""

    def __init__(self, model: ir.Model, options: LoweringOptions) -> None:
        self.options = options
        self.program = Program()
        self._views: dict[ir.Value, View] = {}
        self._done: set[ir.Node] = set()
        outputs = {value.name: value for value in model.graph.outputs}
        self._logits = outputs[contract.logits(0).name]
        self._logits_values = _in_place_chain(self._logits)

    def visit(self, node: ir.Node, handler: Handler) -> None:
        handler(self, node)
        self._done.add(node)

    def view(self, node: ir.Node, index: int) -> View:
        """The view of a node's input. BuildError when no call computes it."""
        value = node.inputs[index]
        view = self._views.get(value) if value is not None else None
        if view is None:
            name = value.name if value is not None else None
            raise refused(node, f"input {index} ({name!r}) is not an activation", "fold or rewrite it before lowering")
        return view

    def has_logits(self) -> bool:
        return self._logits in self._views

    def has_view(self, value: ir.Value | None) -> bool:
        return value in self._views

    def bind(self, value: ir.Value, view: View) -> View:
        """Let ``value`` live in ``view``."""
        if value is self._logits and view.buffer != LOGITS_BUFFER:
            raise BuildError(f"the logits come from {value.name!r}, a view; a kernel must write them")
        self._views[value] = view
        return view

    def new_output(self, node: ir.Node, index: int = 0) -> View:
        """A buffer of its own for an output, or the step's logits."""
        value = node.outputs[index]
        rows, cols = self.extent(node, value)
        if value in self._logits_values:
            return self.bind(value, View(LOGITS_BUFFER, rows, 0, cols, cols))
        return self.bind(value, self.program.new_view(rows, cols))

    def output_over(self, node: ir.Node, inputs: tuple[int, ...], index: int = 0) -> View:
        """The first of ``inputs`` that nothing reads after this node, overwritten in place; else a new buffer."""
        value = node.outputs[index]
        rows, cols = self.extent(node, value)
        if value not in self._logits_values:
            for number in inputs:
                source = node.inputs[number]
                view = self._views.get(source) if source is not None else None
                if view is not None and (view.rows, view.cols) == (rows, cols) and not self._is_read_later(view, node):
                    return self.bind(value, view)
        return self.new_output(node, index)

    def extent(self, node: ir.Node, value: ir.Value) -> tuple[Rows, int]:
        """Row domain of a value and elements per row."""
        shape = value.shape
        dims = [dim if isinstance(dim, int) else dim.value for dim in shape] if shape is not None else []
        rows = _ROWS.get(dims[0]) if dims and isinstance(dims[0], str) else None
        if rows is None or not all(isinstance(dim, int) for dim in dims[1:]):
            raise refused(node, f"{value.name!r} has shape {dims}", "the first axis must be tokens or logit_rows")
        cols = 1
        for dim in dims[1:]:
            cols *= int(dim or 0)
        return rows, cols

    def matrix(self, node: ir.Node, index: int) -> WeightSpec:
        """The packed weight of a Gemm or an embedding: an initializer or one that is dequantized."""
        value = node.inputs[index]
        assert value is not None
        producer = value.producer()
        if value.is_initializer():
            return float_matrix(value, self.options.matrix_format)
        if producer is not None and (producer.domain, producer.op_type) in DEQUANTIZERS and _is_constant(producer):
            return quantized_matrix(producer)
        raise refused(node, f"its weight {value.name!r} is computed", "fold it into an initializer")

    def row_weight(self, node: ir.Node, index: int, max_rows: int | None = None) -> WeightSpec:
        """A norm scale, a bias or a table: an initializer kept as float32 rows."""
        value = node.inputs[index]
        if value is None or not value.is_initializer():
            raise refused(node, f"input {index} is computed", "fold it into an initializer")
        return rows_f32(value, max_rows)

    def _is_read_later(self, view: View, node: ir.Node) -> bool:
        """Whether a node still to come reads columns that ``view`` covers."""
        return any(
            other.overlaps(view)
            and (
                value.is_graph_output() or any(user is not node and user not in self._done for user, _ in value.uses())
            )
            for value, other in self._views.items()
            if other.buffer == view.buffer
        )


def refused(node: ir.Node, problem: str, remedy: str) -> BuildError:
    return BuildError(f"the CPU target cannot run {node.op_type} {node.name!r}: {problem}; {remedy}")


def _is_constant(node: ir.Node) -> bool:
    return all(value is not None and value.is_initializer() for value in node.inputs)


def _in_place_chain(logits: ir.Value) -> set[ir.Value]:
    """The logits and the values before them that elementwise nodes alone turn into them: all live in the output."""
    chain = {logits}
    value = logits
    while (node := value.producer()) is not None and node.op_type in ("Mul", "Tanh"):
        before = next((v for v in node.inputs if v is not None and not v.is_initializer()), None)
        if before is None or len(before.uses()) != 1 or before.shape != logits.shape:
            break
        chain.add(before)
        value = before
    return chain
