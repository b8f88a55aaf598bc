from __future__ import annotations

from dataclasses import replace

import pytest

from trtc.engine.format import KvDtype, OperandKind, Rows, WeightFormat
from trtc.engine.operators import Op
from trtc.engine.plan import (
    Call,
    KvLayer,
    ModelFacts,
    Operand,
    Plan,
    WeightEntry,
    describe_operand,
    encode_plan,
    plan_bytes,
    read_plan,
)

FACTS = ModelFacts(29, 1, 4, 32, 64, 32, 16, 2048, 4096)


def some_plan():
    x = Operand(OperandKind.ARENA, 0, 64, 16, 8)
    y = Operand(OperandKind.LOGITS, 0, 0, 29, 29)
    weight = Operand(OperandKind.WEIGHT, 0, 0, 8, 8)
    linear = Call(Op.LINEAR, Rows.LOGIT_ROWS, "lm_head", (x, Operand(), Operand(), weight, Operand(), y))
    scale = Call(Op.SCALE, Rows.LOGIT_ROWS, "cap", (y, y), (), (0.5,))
    plan = Plan(FACTS, (KvLayer(1, 8, KvDtype.F32),), (), (linear, scale))
    entry = WeightEntry("head", WeightFormat.PACKED_F32, 0, 29, 8, 0, 1024, bytes(range(32)))
    plan = replace(plan, weights=(entry,))
    return replace(plan, weights=(replace(entry, offset=plan_bytes(plan)),))


def test_plan_survives_a_round_trip(tmp_path):
    plan = some_plan()
    path = tmp_path / "rank0.engine"
    path.write_bytes(encode_plan(plan) + bytes(1024))
    got = read_plan(path)
    assert got == plan
    assert len(got.engine_hash) == 64


def test_engine_hash_changes_with_a_weight_hash(tmp_path):
    plan = some_plan()
    other = replace(plan, weights=(replace(plan.weights[0], sha256=bytes(32)),))
    hashes = set()
    for number, each in enumerate((plan, other)):
        path = tmp_path / f"{number}"
        path.write_bytes(encode_plan(each) + bytes(1024))
        hashes.add(read_plan(path).engine_hash)
    assert len(hashes) == 2


def test_call_with_wrong_arity_is_refused():
    with pytest.raises(ValueError, match="SCALE"):
        encode_plan(replace(some_plan(), calls=(Call(Op.SCALE, Rows.TOKENS, "bad", (), (), (1.0,)),)))


def test_operands_are_described_for_listings():
    plan = some_plan()
    described = [describe_operand(operand, plan) for operand in plan.calls[0].operands]
    assert described == ["arena+64[8]", "-", "-", "head", "-", "logits[29]"]
