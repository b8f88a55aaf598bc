"""The plan as Python values, and its bytes: ``encode_plan`` writes them, ``open_plan`` checks and reads them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtc.engine import format as fmt
from trtc.engine.format import KvDtype, OperandKind, Rows, SectionKind, StepInput, WeightFormat
from trtc.engine.operators import OP_SPECS, Op
from trtc.errors import EngineError


@dataclass(frozen=True)
class ModelFacts:
    """ModelInfo of cpp/src/backend/model_backend.h, and the activation arena's size."""

    vocab_size: int
    num_layers: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_logit_rows: int
    tokens_per_block: int
    kv_bytes_per_block: int
    arena_bytes: int
    required_isa: int = 0


@dataclass(frozen=True)
class KvLayer:
    kv_heads: int
    head_dim: int
    dtype: KvDtype


@dataclass(frozen=True)
class WeightEntry:
    """Where one weight lies; ``n`` x ``k`` is its logical shape, ``offset`` counts from the start of the file."""

    name: str
    format: WeightFormat
    group: int
    n: int
    k: int
    offset: int
    size: int  # bytes
    sha256: bytes = b"\0" * 32


@dataclass(frozen=True)
class Operand:
    kind: OperandKind = OperandKind.NONE
    index: int = 0
    offset: int = 0
    row_stride: int = 0
    cols: int = 0


@dataclass(frozen=True)
class Call:
    """One kernel call; operands in the order of the operator's slots."""

    op: Op
    rows: Rows
    name: str
    operands: tuple[Operand, ...]
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plan:
    facts: ModelFacts
    kv_layers: tuple[KvLayer, ...]
    weights: tuple[WeightEntry, ...]
    calls: tuple[Call, ...]
    engine_hash: str = field(default="", compare=False)

    @property
    def weight_bytes(self) -> int:
        return sum(weight.size for weight in self.weights)


def _section_sizes(plan: Plan, strings: bytes) -> list[int]:
    """Bytes of the sections before the weights."""
    return [
        fmt.MODEL.size,
        len(plan.kv_layers) * fmt.KV_LAYER.size,
        len(plan.weights) * fmt.WEIGHT.size,
        len(plan.calls) * fmt.CALL.size,
        len(strings),
    ]


def _section_offsets(sizes: Sequence[int]) -> list[int]:
    offsets = [fmt.align(fmt.HEADER.size)]
    for size in sizes:
        offsets.append(fmt.align(offsets[-1] + size))
    return offsets


def _strings(plan: Plan) -> tuple[bytes, dict[str, int]]:
    return fmt.string_table([w.name for w in plan.weights] + [c.name for c in plan.calls])


def plan_bytes(plan: Plan) -> int:
    """Bytes before the weights. Depends on the number of records and their names, not on what they hold."""
    return _section_offsets(_section_sizes(plan, _strings(plan)[0]))[-1]


def encode_plan(plan: Plan) -> bytes:
    """Everything before the weights, with checksum and engine hash filled in."""
    strings, names = _strings(plan)
    sizes = _section_sizes(plan, strings)
    offsets = _section_offsets(sizes)
    end = max((w.offset + w.size for w in plan.weights), default=offsets[-1])
    contents = [
        fmt.MODEL.pack(vars(plan.facts)),
        b"".join(fmt.KV_LAYER.pack({**vars(layer), "reserved": 0}) for layer in plan.kv_layers),
        b"".join(fmt.WEIGHT.pack({**vars(w), "name": names[w.name], "reserved": 0}) for w in plan.weights),
        b"".join(_pack_call(call, names) for call in plan.calls),
        strings,
    ]
    counts = [1, len(plan.kv_layers), len(plan.weights), len(plan.calls), len(strings), end - offsets[-1]]
    header = {
        "magic": fmt.MAGIC,
        "format_version": fmt.FORMAT_VERSION,
        "plan_crc32": 0,
        "file_bytes": end,
        "plan_bytes": offsets[-1],
        "engine_hash": b"\0" * 32,
        "sections": [_section_entry(kind, offsets[kind], counts[kind]) for kind in SectionKind],
    }
    data = bytearray(offsets[-1])
    data[: fmt.HEADER.size] = fmt.HEADER.pack(header)
    for offset, content in zip(offsets, contents, strict=False):
        data[offset : offset + len(content)] = content
    header["engine_hash"] = hashlib.sha256(data).digest()
    data[: fmt.HEADER.size] = fmt.HEADER.pack(header)
    header["plan_crc32"] = zlib.crc32(data)
    data[: fmt.HEADER.size] = fmt.HEADER.pack(header)
    return bytes(data)


def _section_entry(kind: SectionKind, offset: int, count: int) -> dict[str, int]:
    record = fmt.SECTION_RECORDS[kind]
    return {"kind": kind, "record_bytes": record.size if record else 1, "offset": offset, "count": count}


def _pack_call(call: Call, names: dict[str, int]) -> bytes:
    spec = OP_SPECS[call.op]
    shape = (len(call.operands), len(call.ints), len(call.floats))
    expected = (len(spec.slots), len(spec.ints), len(spec.floats))
    if shape != expected:
        raise ValueError(f"{call.name}: {call.op.name} has {shape} operands, ints and floats, expected {expected}")
    operands = [vars(operand) for operand in call.operands]
    operands += [vars(Operand())] * (fmt.MAX_OPERANDS - len(operands))
    return fmt.CALL.pack(
        {
            "op": call.op,
            "rows": call.rows,
            "name": names[call.name],
            "reserved": 0,
            "operands": operands,
            "ints": [*call.ints, *[0] * (fmt.MAX_INTS - len(call.ints))],
            "floats": [*call.floats, *[0.0] * (fmt.MAX_FLOATS - len(call.floats))],
            "padding": [0, 0],
        }
    )


@dataclass(frozen=True)
class PlanFile:
    """The bytes before the weights, whole and undamaged; records are decoded when asked for."""

    path: Path
    header: dict[str, Any]
    data: bytes

    @property
    def engine_hash(self) -> str:
        digest: bytes = self.header["engine_hash"]
        return digest.hex()

    def decode(self) -> Plan:
        """Raises EngineError when a record holds what this version does not know."""
        try:
            return _decode(self.header, self.data)
        except (struct.error, ValueError, IndexError) as error:
            raise EngineError(
                f"{self.path}: the plan holds an invalid record ({error}); build the engine again"
            ) from error


def open_plan(path: Path) -> PlanFile:
    """Reads nothing of the weights.

    Raises EngineError when the file is not an engine, is of another format version, truncated or altered.
    """
    with path.open("rb") as file:
        head = file.read(fmt.HEADER.size)
        size = file.seek(0, 2)
        header = _check_header(path, head, size)
        file.seek(0)
        data = file.read(header["plan_bytes"])
    zeroed = fmt.HEADER.pack({**header, "plan_crc32": 0})
    if zlib.crc32(zeroed + data[fmt.HEADER.size :]) != header["plan_crc32"]:
        raise EngineError(f"{path}: the plan's checksum does not match: the file is damaged; build the engine again")
    return PlanFile(path, header, data)


def read_plan(path: Path) -> Plan:
    """``open_plan`` and ``decode``."""
    return open_plan(path).decode()


def _check_header(path: Path, head: bytes, size: int) -> dict[str, Any]:
    if len(head) < fmt.HEADER.size or head[: len(fmt.MAGIC)] != fmt.MAGIC:
        raise EngineError(f"{path} is not an engine file of the CPU target; build the engine again")
    header = fmt.HEADER.unpack(head)
    version = header["format_version"]
    if version != fmt.FORMAT_VERSION:
        raise EngineError(
            f"{path} has plan format {version}, this version of trtc reads {fmt.FORMAT_VERSION}; build the engine again"
        )
    if header["file_bytes"] != size:
        raise EngineError(
            f"{path} has {size} bytes, its header says {header['file_bytes']}: it is truncated or damaged; "
            "copy or build the engine again"
        )
    if not fmt.HEADER.size <= header["plan_bytes"] <= size:
        raise EngineError(f"{path}: the plan's size {header['plan_bytes']} is impossible; build the engine again")
    return header


def _decode(header: dict[str, Any], data: bytes) -> Plan:
    strings = _section_bytes(header, data, SectionKind.STRINGS)

    def name(offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode()

    def records(kind: SectionKind) -> list[dict[str, Any]]:
        record = fmt.SECTION_RECORDS[kind]
        assert record is not None
        content = _section_bytes(header, data, kind)
        return [record.unpack(content, offset) for offset in range(0, len(content), record.size)]

    return Plan(
        facts=ModelFacts(**records(SectionKind.MODEL)[0]),
        kv_layers=tuple(
            KvLayer(r["kv_heads"], r["head_dim"], KvDtype(r["dtype"])) for r in records(SectionKind.KV_LAYERS)
        ),
        weights=tuple(_decode_weight(r, name(r["name"])) for r in records(SectionKind.WEIGHTS)),
        calls=tuple(_decode_call(r, name(r["name"])) for r in records(SectionKind.CALLS)),
        engine_hash=header["engine_hash"].hex(),
    )


def _section_bytes(header: dict[str, Any], data: bytes, kind: SectionKind) -> bytes:
    entry = header["sections"][kind]
    end = entry["offset"] + entry["count"] * entry["record_bytes"]
    if entry["kind"] != kind or end > len(data):
        raise ValueError(f"section {kind.name} lies outside the plan")
    return data[entry["offset"] : end]


def _decode_weight(record: dict[str, Any], name: str) -> WeightEntry:
    values = {key: value for key, value in record.items() if key not in ("name", "reserved")}
    return WeightEntry(name=name, **{**values, "format": WeightFormat(values["format"])})


def _decode_call(record: dict[str, Any], name: str) -> Call:
    spec = OP_SPECS[Op(record["op"])]
    operands = tuple(
        Operand(**{**operand, "kind": OperandKind(operand["kind"])})
        for operand in record["operands"][: len(spec.slots)]
    )
    return Call(
        op=spec.op,
        rows=Rows(record["rows"]),
        name=name,
        operands=operands,
        ints=tuple(record["ints"][: len(spec.ints)]),
        floats=tuple(record["floats"][: len(spec.floats)]),
    )


def describe_operand(operand: Operand, plan: Plan) -> str:
    """``arena+4096[576]`` and the like, for listings."""
    if operand.kind is OperandKind.NONE:
        return "-"
    if operand.kind is OperandKind.WEIGHT:
        return plan.weights[operand.index].name
    if operand.kind is OperandKind.STEP_INPUT:
        return StepInput(operand.index).name.lower()
    if operand.kind is OperandKind.LOGITS:
        return f"logits[{operand.cols}]"
    return f"arena+{operand.offset}[{operand.cols}]"
