"""Writes C++ headers from declarations: ``python -m trtc.engine.generate_header``.

``cpp/src/engine/plan_format.h`` has the plan's records, ``binding_names.h`` beside it the names of a step's bindings.
"""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

from trtc.engine import format as plan
from trtc.engine.operators import OP_SPECS, Op, OpSpec
from trtc.graph import contract

HEADER_PATH = Path(__file__).resolve().parents[2] / "cpp" / "src" / "engine" / "plan_format.h"
BINDINGS_PATH = HEADER_PATH.with_name("binding_names.h")

_CPP_TYPES = {
    "u8": "std::uint8_t",
    "u32": "std::uint32_t",
    "i32": "std::int32_t",
    "u64": "std::uint64_t",
    "f32": "float",
}
_ENUMS: tuple[tuple[type[IntEnum], str], ...] = (
    (plan.SectionKind, "SectionKind"),
    (plan.WeightFormat, "BlobFormat"),
    (plan.KvDtype, "KvStorage"),
    (plan.ActivationKind, "ActivationKind"),
    (plan.Rows, "Rows"),
    (plan.OperandKind, "OperandKind"),
    (plan.StepInput, "StepInput"),
    (Op, "Op"),
)
_PROLOGUE = """\
// Generated from trtc/engine/format.py and operators.py by `python -m trtc.engine.generate_header`; do not edit.
// The records of rank<N>.engine, byte for byte (little-endian).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// clang-format off
namespace trtc::engine {
"""
_SPEC_STRUCTS = """\
// What one operand slot accepts: `kinds` is a bit set of 1 << OperandKind.
struct SlotSpec {
  std::string_view name;
  std::uint32_t kinds;
  std::uint32_t element_bytes;
  bool output;
};

struct OpSpec {
  std::string_view name;
  std::uint32_t slots;
  std::uint32_t ints;
  std::uint32_t floats;
  std::array<SlotSpec, kMaxOperands> slot;
};
"""


def _constant(name: str) -> str:
    """PACKED_F32 -> kPackedF32."""
    return "k" + "".join(part.capitalize() for part in name.lower().split("_"))


def _enum(enum: type[IntEnum], name: str) -> str:
    members = "".join(f"  {_constant(member.name)} = {member.value},\n" for member in enum)
    return f"enum class {name} : std::uint32_t {{\n{members}}};\nconstexpr std::uint32_t k{name}Count = {len(enum)};\n"


def _record(record: plan.Record) -> str:
    lines = [f"// {record.doc}", f"struct {record.name} {{"]
    for field in record.fields:
        cpp_type = field.type.name if isinstance(field.type, plan.Record) else _CPP_TYPES[field.type]
        count = f"[{field.count}]" if field.count > 1 else ""
        doc = f"  // {field.doc}" if field.doc else ""
        lines.append(f"  {cpp_type} {field.name}{count};{doc}")
    lines += ["};", f"static_assert(sizeof({record.name}) == {record.size});", ""]
    return "\n".join(lines)


def _slot_constants(spec: OpSpec) -> str:
    slots = ", ".join(f"{_constant(slot.name)} = {index}" for index, slot in enumerate(spec.slots))
    lines = [f"namespace {spec.op.name.lower()} {{  // {spec.doc}", f"enum Slot : std::uint32_t {{ {slots} }};"]
    for kind, names in (("Int", spec.ints), ("Float", spec.floats)):
        if names:
            constants = ", ".join(f"{_constant(name)} = {index}" for index, name in enumerate(names))
            lines.append(f"enum {kind} : std::uint32_t {{ {constants} }};")
    return "\n".join([*lines, f"}}  // namespace {spec.op.name.lower()}", ""])


def _spec_row(spec: OpSpec) -> str:
    slots = ",\n        ".join(
        f'{{"{slot.name}", 0x{int(slot.kinds):02x}, {slot.element_bytes}, {"true" if slot.output else "false"}}}'
        for slot in spec.slots
    )
    counts = f"{len(spec.slots)}, {len(spec.ints)}, {len(spec.floats)}"
    return f'    {{"{spec.op.name}", {counts}, {{{{\n        {slots}}}}}}},\n'


def header_text() -> str:
    """The whole header."""
    magic = plan.MAGIC.decode()
    constants = (
        f'constexpr std::string_view kMagic = "{magic}";\n'
        f"constexpr std::uint32_t kFormatVersion = {plan.FORMAT_VERSION};\n"
        f"constexpr std::size_t kAlignment = {plan.ALIGNMENT};\n"
        f"constexpr std::uint32_t kMaxOperands = {plan.MAX_OPERANDS};\n"
        f"constexpr std::uint32_t kMaxInts = {plan.MAX_INTS};\n"
        f"constexpr std::uint32_t kMaxFloats = {plan.MAX_FLOATS};\n"
    )
    parts = [_PROLOGUE, constants]
    parts += [_enum(enum, name) for enum, name in _ENUMS]
    parts += [_record(record) for record in plan.RECORDS]
    parts.append("// Operand slots and parameters of each operator, as indexes into a CallRecord's arrays.\n")
    parts += [_slot_constants(spec) for spec in OP_SPECS]
    parts.append(_SPEC_STRUCTS)
    rows = "".join(_spec_row(spec) for spec in OP_SPECS)
    parts.append(f"// Indexed by Op.\nconstexpr std::array<OpSpec, kOpCount> kOpSpecs = {{{{\n{rows}}}}};\n")
    parts.append("}  // namespace trtc::engine\n// clang-format on\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def binding_names_text() -> str:
    """The header with the names of a step's bindings."""
    inputs = "".join(f'    "{binding.name}",  // {_shape(binding)}\n' for binding in contract.STEP_INPUTS)
    prefix = contract.kv_cache(0, 1, 1, 1).name.removesuffix("0")
    suffix = contract.kv_cache_out(0).removeprefix(prefix + "0")
    return f"""\
// Generated from trtc/graph/contract.py by `python -m trtc.engine.generate_header`; do not edit.
// The names of a step's bindings.
#pragma once

#include <array>

// clang-format off
namespace trtc::engine {{

// int32 inputs of every step, in the order of StepInputs.
constexpr std::array<const char*, {len(contract.STEP_INPUTS)}> kStepInputNames{{{{
{inputs}}}}};
constexpr const char* kLogitsName = "{contract.logits(1).name}";
constexpr const char* kKvCachePrefix = "{prefix}";  // then the layer's number
constexpr const char* kKvCacheOutSuffix = "{suffix}";  // of the output that aliases a layer's cache

}}  // namespace trtc::engine
// clang-format on
"""


def _shape(binding: contract.Binding) -> str:
    return f"[{', '.join(map(str, binding.shape))}]"


def main() -> None:
    HEADER_PATH.parent.mkdir(parents=True, exist_ok=True)
    HEADER_PATH.write_text(header_text())
    BINDINGS_PATH.write_text(binding_names_text())


if __name__ == "__main__":
    main()
