"""Kernel operators of the CPU plan: their operand slots and parameters, declared once.

A call's operands stand in the order of its operator's slots. The C++ loader checks every call against the table
generated from this one before it runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trtc.engine.format import SlotKinds

_ARENA = SlotKinds.ARENA
_ROWS = SlotKinds.ARENA | SlotKinds.LOGITS
_STEP = SlotKinds.STEP_INPUT
_WEIGHT = SlotKinds.WEIGHT
_ABSENT = SlotKinds.ABSENT


class Op(IntEnum):
    EMBEDDING = 0
    GATHER_ROWS = 1
    RMS_NORM = 2
    LAYER_NORM = 3
    QUANTIZE_ROWS = 4
    LINEAR = 5
    ROTARY = 6
    GATED_ACTIVATION = 7
    ACTIVATION = 8
    ADD = 9
    MUL = 10
    SCALE = 11
    KV_WRITE = 12
    ATTENTION = 13


@dataclass(frozen=True)
class Slot:
    """One operand: the kinds it may have, bytes per element, and whether the call writes it."""

    name: str
    kinds: SlotKinds
    element_bytes: int = 4
    output: bool = False


@dataclass(frozen=True)
class OpSpec:
    """``y``-like slots are outputs; ``ints`` and ``floats`` name the parameters in order."""

    op: Op
    doc: str
    slots: tuple[Slot, ...]
    ints: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()

    def slot(self, name: str) -> int:
        return [slot.name for slot in self.slots].index(name)


def _norm_slots() -> tuple[Slot, ...]:
    return (
        Slot("x", _ARENA),
        Slot("residual", _ARENA | _ABSENT),
        Slot("scale", _WEIGHT),
        Slot("bias", _WEIGHT | _ABSENT),
        Slot("y", _ARENA, output=True),
        Slot("sum", _ARENA | _ABSENT, output=True),
    )


def _binary_slots() -> tuple[Slot, ...]:
    return (Slot("a", _ROWS), Slot("b", _ROWS | _WEIGHT), Slot("y", _ROWS, output=True))


OP_SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        Op.EMBEDDING,
        "y[i] = row ids[i] of a packed matrix",
        (Slot("ids", _STEP), Slot("table", _WEIGHT), Slot("y", _ARENA, output=True)),
    ),
    OpSpec(
        Op.GATHER_ROWS,
        "y[i] = x[ids[i]]; x is activations or a ROWS_F32 weight",
        (Slot("ids", _STEP), Slot("x", _ARENA | _WEIGHT), Slot("y", _ARENA, output=True)),
    ),
    OpSpec(Op.RMS_NORM, "y = RMSNorm(x + residual), sum = x + residual", _norm_slots(), ("groups",), ("epsilon",)),
    OpSpec(Op.LAYER_NORM, "y = LayerNorm(x + residual), sum = x + residual", _norm_slots(), ("groups",), ("epsilon",)),
    OpSpec(
        Op.QUANTIZE_ROWS,
        "y int8, scales: x by row and group",
        (Slot("x", _ARENA), Slot("y", _ARENA, 1, output=True), Slot("scales", _ARENA, output=True)),
        ("group",),
    ),
    OpSpec(
        Op.LINEAR,
        "y = x W^T + bias; x is float32, or q int8 with q_scales",
        (
            Slot("x", _ARENA | _ABSENT),
            Slot("q", _ARENA | _ABSENT, 1),
            Slot("q_scales", _ARENA | _ABSENT),
            Slot("weight", _WEIGHT),
            Slot("bias", _WEIGHT | _ABSENT),
            Slot("y", _ROWS, output=True),
        ),
    ),
    OpSpec(
        Op.ROTARY,
        "rotates the first rotary_dim channels of each head",
        (
            Slot("x", _ARENA),
            Slot("position_ids", _STEP),
            Slot("cos", _WEIGHT),
            Slot("sin", _WEIGHT),
            Slot("y", _ARENA, output=True),
        ),
        ("heads", "head_dim", "rotary_dim"),
    ),
    OpSpec(
        Op.GATED_ACTIVATION,
        "y = act(x[:, :n]) * x[:, n:]",
        (Slot("x", _ARENA), Slot("y", _ARENA, output=True)),
        ("activation",),
    ),
    OpSpec(Op.ACTIVATION, "y = act(x)", (Slot("x", _ROWS), Slot("y", _ROWS, output=True)), ("activation",)),
    OpSpec(Op.ADD, "y = a + b; b with row stride 0 is one row for all", _binary_slots()),
    OpSpec(Op.MUL, "y = a * b; b with row stride 0 is one row for all", _binary_slots()),
    OpSpec(Op.SCALE, "y = x * factor", (Slot("x", _ROWS), Slot("y", _ROWS, output=True)), (), ("factor",)),
    OpSpec(Op.KV_WRITE, "stores the step's keys and values", (Slot("key", _ARENA), Slot("value", _ARENA)), ("layer",)),
    OpSpec(
        Op.ATTENTION,
        "causal attention over the layer's cache",
        (Slot("query", _ARENA), Slot("y", _ARENA, output=True)),
        ("layer", "heads", "window"),
        ("scale", "softcap"),
    ),
)
