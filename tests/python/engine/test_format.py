from __future__ import annotations

import struct

import pytest

from trtc.engine import format as fmt
from trtc.engine.format import SlotKinds
from trtc.engine.generate_header import BINDINGS_PATH, HEADER_PATH, binding_names_text, header_text
from trtc.engine.operators import OP_SPECS, Op
from trtc.graph import contract


def test_generated_header_is_up_to_date():
    assert HEADER_PATH.read_text() == header_text(), "run: python -m trtc.engine.generate_header"
    assert BINDINGS_PATH.read_text() == binding_names_text(), "run: python -m trtc.engine.generate_header"


@pytest.mark.parametrize("record", fmt.RECORDS, ids=lambda record: record.name)
def test_packed_size_is_the_size_with_natural_alignment(record):
    assert struct.calcsize("<" + record.codes) == struct.calcsize("@" + record.codes)


def test_records_of_a_section_stay_aligned():
    assert all(record.size % 8 == 0 for record in fmt.RECORDS)


def test_call_record_survives_a_round_trip():
    operand = {"kind": 1, "index": 0, "offset": 1 << 40, "row_stride": 576, "cols": 64}
    values = {
        "op": 5,
        "rows": 1,
        "name": 77,
        "reserved": 0,
        "operands": [operand] * fmt.MAX_OPERANDS,
        "ints": [-1, 2, 3, 4],
        "floats": [0.5, -2.0],
        "padding": [0, 0],
    }
    assert fmt.CALL.unpack(fmt.CALL.pack(values)) == values


def test_every_operator_has_a_spec_that_fits_the_record():
    assert [spec.op for spec in OP_SPECS] == list(Op)
    for spec in OP_SPECS:
        assert len(spec.slots) <= fmt.MAX_OPERANDS
        assert len(spec.ints) <= fmt.MAX_INTS and len(spec.floats) <= fmt.MAX_FLOATS


def test_outputs_are_never_weights_or_step_inputs():
    outputs = [slot for spec in OP_SPECS for slot in spec.slots if slot.output]
    assert outputs and not any(slot.kinds & (SlotKinds.WEIGHT | SlotKinds.STEP_INPUT) for slot in outputs)


def test_step_inputs_are_bindings_of_the_contract():
    names = {binding.name for binding in contract.STEP_INPUTS}
    assert {member.name.lower() for member in fmt.StepInput} <= names


def test_string_table_stores_each_name_once():
    table, offsets = fmt.string_table(["a", "bc", "a"])
    assert table == b"a\0bc\0" and offsets == {"a": 0, "bc": 2}
