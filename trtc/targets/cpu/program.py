"""The program that lowering emits into: calls over views of buffers, before buffers have addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from trtc.engine.format import OperandKind, Rows, StepInput
from trtc.engine.operators import OP_SPECS, Op
from trtc.engine.plan import Call, KvLayer, Operand
from trtc.targets.cpu.memory_plan import Lifetime, MemoryPlan, plan_memory
from trtc.targets.cpu.weight_spec import WeightSpec

LOGITS_BUFFER = -1  # the step's output, which the caller owns
_ROW_ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class Buffer:
    """Rows of activations in the arena; ``row_stride`` in elements."""

    rows: Rows
    row_stride: int
    element_bytes: int = 4


@dataclass(frozen=True)
class View:
    """Columns ``first_col`` to ``first_col + cols`` of every row of a buffer."""

    buffer: int
    rows: Rows
    first_col: int
    cols: int
    row_stride: int
    element_bytes: int = 4

    def columns(self, first: int, cols: int) -> View:
        return replace(self, first_col=self.first_col + first, cols=cols)

    def overlaps(self, other: View) -> bool:
        same = self.buffer == other.buffer
        return same and self.first_col < other.first_col + other.cols and other.first_col < self.first_col + self.cols

    def operand(self) -> Operand:
        if self.buffer == LOGITS_BUFFER:
            return Operand(OperandKind.LOGITS, row_stride=self.row_stride, cols=self.cols)
        offset = self.first_col * self.element_bytes  # the buffer's own offset is added once it has one
        return Operand(OperandKind.ARENA, self.buffer, offset, self.row_stride, self.cols)


@dataclass
class Program:
    """Calls in order. ARENA operands carry their buffer's number in ``index`` until ``place`` gives addresses."""

    buffers: list[Buffer] = field(default_factory=list)
    weights: list[WeightSpec] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kv_layers: dict[int, KvLayer] = field(default_factory=dict)
    _weight_indexes: dict[str, int] = field(default_factory=dict)

    def new_view(self, rows: Rows, cols: int, element_bytes: int = 4) -> View:
        """A view of a whole new buffer, its rows 64-byte aligned."""
        per_line = _ROW_ALIGNMENT // element_bytes
        stride = -(-cols // per_line) * per_line
        self.buffers.append(Buffer(rows, stride, element_bytes))
        return View(len(self.buffers) - 1, rows, 0, cols, stride, element_bytes)

    def weight(self, spec: WeightSpec, *, every_row: bool = False) -> Operand:
        """A weight as operand; ``every_row`` repeats its one row. A weight of a known name is stored once."""
        index = self._weight_indexes.setdefault(spec.name, len(self.weights))
        if index == len(self.weights):
            self.weights.append(spec)
        return Operand(OperandKind.WEIGHT, index, 0, 0 if every_row else spec.k, spec.k)

    def call(
        self,
        op: Op,
        rows: Rows,
        node: ir.Node,
        operands: dict[str, Operand | View | None],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        slots = [operands.pop(slot.name, None) for slot in OP_SPECS[op].slots]
        assert not operands, f"{op.name} has no operands {sorted(operands)}"
        resolved = [slot.operand() if isinstance(slot, View) else slot or Operand() for slot in slots]
        self.calls.append(Call(op, rows, node.name or op.name, tuple(resolved), tuple(ints), tuple(floats)))

    def lifetimes(self, max_rows: dict[Rows, int]) -> list[Lifetime]:
        """First and last call that touches each buffer."""
        spans: dict[int, tuple[int, int]] = {}
        for index, call in enumerate(self.calls):
            for operand in call.operands:
                if operand.kind is OperandKind.ARENA:
                    first, _ = spans.get(operand.index, (index, index))
                    spans[operand.index] = (first, index)
        sizes = [buffer.row_stride * buffer.element_bytes * max_rows[buffer.rows] for buffer in self.buffers]
        return [Lifetime(size, *spans[number]) for number, size in enumerate(sizes)]

    def place(self, max_rows: dict[Rows, int]) -> tuple[tuple[Call, ...], MemoryPlan]:
        """The calls with arena offsets filled in."""
        memory = plan_memory(self.lifetimes(max_rows))

        def placed(operand: Operand) -> Operand:
            if operand.kind is not OperandKind.ARENA:
                return operand
            return replace(operand, index=0, offset=operand.offset + memory.offsets[operand.index])

        calls = tuple(replace(call, operands=tuple(map(placed, call.operands))) for call in self.calls)
        return calls, memory


def step_input(which: StepInput) -> Operand:
    return Operand(OperandKind.STEP_INPUT, which, 0, 1, 1)
