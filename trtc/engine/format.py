"""The binary plan in ``rank<N>.engine`` of the CPU target, declared once as data.

A file is: header, records (model facts, KV layers, weights, kernel calls), string table, then the weights, every
section aligned to 64 bytes. Integers are little-endian. All records lie before the weights, so a loader reads a few
pages and maps the rest. ``plan_crc32`` covers everything before the weights (itself as zero); ``engine_hash`` is the
SHA-256 of the same bytes with both fields zero, and since weight records carry the SHA-256 of their blobs it names the
weights too. ``cpp/src/engine/plan_format.h`` is generated from this file: ``python -m trtc.engine.generate_header``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cached_property
from typing import Any

MAGIC = b"TRTCPLAN"
FORMAT_VERSION = 1
ALIGNMENT = 64
MAX_OPERANDS = 6
MAX_INTS = 4
MAX_FLOATS = 2

_SCALARS = {"u8": "B", "u32": "I", "i32": "i", "u64": "Q", "f32": "f"}


@dataclass(frozen=True)
class Field:
    """``count`` items of a scalar type or a record. ``u8`` arrays are bytes."""

    name: str
    type: str | Record
    count: int = 1
    doc: str = ""


@dataclass(frozen=True)
class Record:
    """A fixed-size struct whose fields lie at their natural alignment without gaps."""

    name: str
    doc: str
    fields: tuple[Field, ...]

    @cached_property
    def codes(self) -> str:
        """The struct-module format, without the byte order."""
        return "".join(_field_codes(field) for field in self.fields)

    @cached_property
    def size(self) -> int:
        return struct.calcsize("<" + self.codes)

    def pack(self, values: Mapping[str, Any]) -> bytes:
        return struct.pack("<" + self.codes, *_flatten(self, values))

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> dict[str, Any]:
        return _collect(self, iter(struct.unpack_from("<" + self.codes, data, offset)))


def _field_codes(field: Field) -> str:
    if isinstance(field.type, Record):
        return field.type.codes * field.count
    if field.type == "u8":
        return f"{field.count}s"
    return _SCALARS[field.type] * field.count


def _flatten(record: Record, values: Mapping[str, Any]) -> list[Any]:
    flat: list[Any] = []
    for field in record.fields:
        value = values[field.name]
        if isinstance(field.type, Record):
            items = value if field.count > 1 else [value]
            if len(items) != field.count:
                raise ValueError(f"{record.name}.{field.name} has {len(items)} items, expected {field.count}")
            for item in items:
                flat += _flatten(field.type, item)
        elif field.type == "u8" or field.count == 1:
            flat.append(value)
        else:
            flat += value
    return flat


def _collect(record: Record, flat: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in record.fields:
        if isinstance(field.type, Record):
            items = [_collect(field.type, flat) for _ in range(field.count)]
            values[field.name] = items if field.count > 1 else items[0]
        elif field.type == "u8" or field.count == 1:
            values[field.name] = next(flat)
        else:
            values[field.name] = [next(flat) for _ in range(field.count)]
    return values


class SectionKind(IntEnum):
    """Sections in the order in which they lie in the file and in the header's table."""

    MODEL = 0
    KV_LAYERS = 1
    WEIGHTS = 2
    CALLS = 3
    STRINGS = 4
    WEIGHT_DATA = 5


class WeightFormat(IntEnum):
    """PACKED_* as in cpp/src/kernels/linear.h; ROWS_F32 is row-major float32 [n, k] (vectors have n = 1)."""

    PACKED_F32 = 0
    PACKED_BF16 = 1
    PACKED_I8 = 2
    PACKED_I4 = 3
    ROWS_F32 = 4


class KvDtype(IntEnum):
    F32 = 0
    BF16 = 1


class ActivationKind(IntEnum):
    SILU = 0
    GELU = 1
    GELU_TANH = 2
    TANH = 3


class Rows(IntEnum):
    """How many rows a call works on."""

    TOKENS = 0
    LOGIT_ROWS = 1


class OperandKind(IntEnum):
    """ARENA: activations at a byte offset. STEP_INPUT and WEIGHT: by index. LOGITS: the step's output."""

    NONE = 0
    ARENA = 1
    STEP_INPUT = 2
    WEIGHT = 3
    LOGITS = 4


class StepInput(IntEnum):
    """Step inputs that kernels take row by row; names as in trtc.graph.contract."""

    INPUT_IDS = 0
    POSITION_IDS = 1
    LOGIT_ROWS = 2


class SlotKinds(IntFlag):
    """Operand kinds that a slot accepts: 1 << OperandKind."""

    ABSENT = 1 << OperandKind.NONE
    ARENA = 1 << OperandKind.ARENA
    STEP_INPUT = 1 << OperandKind.STEP_INPUT
    WEIGHT = 1 << OperandKind.WEIGHT
    LOGITS = 1 << OperandKind.LOGITS


SECTION = Record(
    "SectionEntry",
    "Where a section lies; count is records, or bytes for STRINGS and WEIGHT_DATA.",
    (Field("kind", "u32"), Field("record_bytes", "u32"), Field("offset", "u64"), Field("count", "u64")),
)
HEADER = Record(
    "Header",
    "The first bytes of the file.",
    (
        Field("magic", "u8", 8),
        Field("format_version", "u32"),
        Field("plan_crc32", "u32", doc="of bytes [0, plan_bytes), this field as zero"),
        Field("file_bytes", "u64"),
        Field("plan_bytes", "u64", doc="everything before the weights"),
        Field("engine_hash", "u8", 32),
        Field("sections", SECTION, len(SectionKind)),
    ),
)
MODEL = Record(
    "ModelRecord",
    "Facts and limits; counts are tokens, sequences or blocks.",
    (
        Field("vocab_size", "i32"),
        Field("num_layers", "i32"),
        Field("max_batch_size", "i32"),
        Field("max_num_tokens", "i32"),
        Field("max_seq_len", "i32"),
        Field("max_logit_rows", "i32"),
        Field("tokens_per_block", "i32"),
        Field("required_isa", "u32", doc="lowest Isa that runs the engine"),
        Field("kv_bytes_per_block", "u64", doc="all layers, key and value"),
        Field("arena_bytes", "u64", doc="activations of max_num_tokens rows"),
    ),
)
KV_LAYER = Record(
    "KvLayerRecord",
    "One layer's pool [blocks, 2, kv_heads, tokens_per_block, head_dim].",
    (Field("kv_heads", "i32"), Field("head_dim", "i32"), Field("dtype", "u32"), Field("reserved", "u32")),
)
WEIGHT = Record(
    "WeightRecord",
    "One blob of the weight section; [n, k] is its logical shape.",
    (
        Field("format", "u32"),
        Field("group", "u32", doc="input channels per scale; 0 for float formats"),
        Field("n", "u64"),
        Field("k", "u64"),
        Field("offset", "u64", doc="from the start of the file"),
        Field("size", "u64", doc="bytes"),
        Field("sha256", "u8", 32),
        Field("name", "u32", doc="offset into the string table"),
        Field("reserved", "u32"),
    ),
)
OPERAND = Record(
    "OperandRecord",
    "A matrix that a call reads or writes.",
    (
        Field("kind", "u32"),
        Field("index", "u32", doc="STEP_INPUT: which; WEIGHT: record number"),
        Field("offset", "u64", doc="ARENA: bytes from its start"),
        Field("row_stride", "u32", doc="elements; 0 repeats one row"),
        Field("cols", "u32"),
    ),
)
CALL = Record(
    "CallRecord",
    "One kernel call; slots and parameters by operator, see kOpSpecs.",
    (
        Field("op", "u32"),
        Field("rows", "u32"),
        Field("name", "u32", doc="offset into the string table"),
        Field("reserved", "u32"),
        Field("operands", OPERAND, MAX_OPERANDS),
        Field("ints", "i32", MAX_INTS),
        Field("floats", "f32", MAX_FLOATS),
        Field("padding", "u32", 2),
    ),
)
RECORDS: tuple[Record, ...] = (SECTION, HEADER, MODEL, KV_LAYER, WEIGHT, OPERAND, CALL)
SECTION_RECORDS: Mapping[SectionKind, Record | None] = {
    SectionKind.MODEL: MODEL,
    SectionKind.KV_LAYERS: KV_LAYER,
    SectionKind.WEIGHTS: WEIGHT,
    SectionKind.CALLS: CALL,
    SectionKind.STRINGS: None,
    SectionKind.WEIGHT_DATA: None,
}


def align(size: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def string_table(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """NUL-terminated UTF-8 strings, each once, and the offset of each."""
    table = bytearray()
    offsets: dict[str, int] = {}
    for name in names:
        if name not in offsets:
            offsets[name] = len(table)
            table += name.encode() + b"\0"
    return bytes(table), offsets
