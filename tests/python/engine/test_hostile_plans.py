"""Plans that a hostile writer changed record by record and sealed again: a typed error or a run, never a crash."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from trtc import _core
from trtc.engine.format import KvDtype, OperandKind, Rows, StepInput, WeightFormat
from trtc.engine.operators import OP_SPECS, Op
from trtc.engine.plan import Call, KvLayer, Operand, Plan, encode_plan, plan_bytes, read_plan
from trtc.errors import EngineError, ExecutorError, TrtcError

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 1500
EDGES = (0, 1, 2, 3, 7, 15, 31, 63, 127, 128, 255, 512, *(1 << bit for bit in range(10, 64, 3)), 2**31 - 1, 2**32 - 1)


class Sealed:
    """Writes changed plans of one engine over its own file, with offsets and checksum that fit."""

    def __init__(self, engine: Path) -> None:
        self.engine = engine
        self.path = engine / "rank0.engine"
        self.plan = read_plan(self.path)
        self._weights = self.path.read_bytes()[plan_bytes(self.plan) :]

    def write(self, plan: Plan) -> None:
        shift = plan_bytes(plan) - plan_bytes(self.plan)
        weights = tuple(replace(weight, offset=weight.offset + shift) for weight in plan.weights)
        self.path.write_bytes(encode_plan(replace(plan, weights=weights)) + self._weights)

    def load(self) -> _core.CpuModel:
        return _core.CpuModel(str(self.engine), 1)

    def execute(self, **config: Any) -> _core.Executor:
        return _core.Executor(str(self.engine), _core.ExecutorConfig(num_threads=1, **config))


def number(rng: random.Random, old: int) -> int:
    return rng.choice([old + 1, old - 1, 2 * old, old // 2, -old, rng.choice(EDGES), rng.choice(EDGES) - 1])


def changed_field(rng: random.Random, record: Any) -> Any:
    name = rng.choice([field.name for field in fields(record) if isinstance(getattr(record, field.name), int)])
    return replace(record, **{name: number(rng, int(getattr(record, name)))})


def changed_at(rng: random.Random, items: tuple[Any, ...], change: Any) -> tuple[Any, ...]:
    at = rng.randrange(len(items))
    return (*items[:at], change(rng, items[at]), *items[at + 1 :])


def changed_operand(rng: random.Random, operand: Operand) -> Operand:
    return replace(operand, kind=rng.choice(list(OperandKind))) if rng.random() < 0.2 else changed_field(rng, operand)


def changed_call(rng: random.Random, call: Call) -> Call:
    match rng.randrange(6):
        case 0:
            return replace(call, rows=rng.choice(list(Rows)))
        case 1 if call.ints:
            return replace(call, ints=changed_at(rng, call.ints, number))
        case 2 if call.floats:
            return replace(call, floats=tuple(rng.choice([0.0, -1.0, 3e38, float("nan")]) for _ in call.floats))
        case 3:  # another operator over the same operands
            spec = OP_SPECS[rng.choice(list(Op))]
            operands = (*call.operands, *[Operand()] * len(spec.slots))[: len(spec.slots)]
            return Call(spec.op, call.rows, call.name, operands, (1,) * len(spec.ints), (1.0,) * len(spec.floats))
        case 4:
            return replace(call, operands=tuple(rng.sample(call.operands, len(call.operands))))
    return replace(call, operands=changed_at(rng, call.operands, changed_operand))


def changed_plan(rng: random.Random, plan: Plan) -> Plan:
    match rng.randrange(8):
        case 0:
            return replace(plan, facts=changed_field(rng, plan.facts))
        case 1:
            return replace(plan, kv_layers=changed_at(rng, plan.kv_layers, changed_field))
        case 2:
            return replace(plan, weights=changed_at(rng, plan.weights, changed_field))
        case 3:
            return replace(plan, calls=tuple(rng.sample(plan.calls, rng.randrange(len(plan.calls) + 1))))
        case 4:
            return replace(plan, calls=(*plan.calls, changed_call(rng, rng.choice(plan.calls))))
    return replace(plan, calls=changed_at(rng, plan.calls, changed_call))


def try_changed_plans(engine: Path, seeds: range) -> int:
    """Load, step and serve one changed plan for each seed. Returns how many were taken."""
    from tests.python.targets.graphs import step_inputs

    sealed, taken = Sealed(engine), 0
    request = _core.Request(input_token_ids=[1, 2, 3], max_tokens=3)
    for seed in seeds:
        rng, plan = random.Random(seed), sealed.plan
        for _ in range(rng.choice([1, 1, 2, 3])):
            plan = changed_plan(rng, plan) if plan.calls else plan
        try:
            sealed.write(plan)
        except Exception:  # a value that its field cannot hold
            continue
        print(seed, file=sys.stderr)
        try:
            model = sealed.load()
            model.allocate_kv_cache(4)
            model.run(**step_inputs(seed=seed))
            with sealed.execute() as executor:
                executor.await_responses(None, executor.enqueue_request(request))
            taken += 1
        except TrtcError:
            pass
    return taken


SCRIPT = """
import sys
from pathlib import Path
from tests.python.engine.test_hostile_plans import try_changed_plans
print(try_changed_plans(Path(sys.argv[1]), range(int(sys.argv[2]))))
"""


def test_changed_plans_never_crash(engine: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(engine), str(SEEDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, f"exit {result.returncode} after the seed at the end of\n{result.stderr[-2000:]}"
    assert int(result.stdout) > SEEDS // 50, "hardly any change was harmless: the test no longer reaches the kernels"


def test_kv_layers_whose_sizes_wrap_around_are_refused(engine: Path) -> None:
    sealed = Sealed(engine)
    huge, small = KvLayer(1 << 16, 1 << 16, KvDtype.F32), sealed.plan.kv_layers[0]
    layers = (*[huge] * 8191, small, huge)  # 8192 huge ones take 2^64 bytes per block
    facts = replace(sealed.plan.facts, num_layers=8193, tokens_per_block=1 << 16, kv_bytes_per_block=64 << 16)
    calls = tuple(
        replace(call, ints=(8191,)) if call.op is Op.KV_WRITE else call
        for call in sealed.plan.calls
        if call.op is not Op.ATTENTION
    )
    sealed.write(replace(sealed.plan, facts=facts, kv_layers=layers, calls=calls))
    with pytest.raises(EngineError, match="the KV layers are too large"):
        sealed.load()


def test_a_weight_too_large_to_be_packed_is_an_engine_error(engine: Path) -> None:
    sealed = Sealed(engine)
    weight = replace(sealed.plan.weights[0], format=WeightFormat.PACKED_F32, n=1 << 30, k=1 << 30)
    sealed.write(replace(sealed.plan, weights=(*sealed.plan.weights, weight)))
    with pytest.raises(EngineError, match="has an impossible shape"):
        sealed.load()


def test_limits_that_no_memory_holds_are_an_executor_error(engine: Path) -> None:
    sealed = Sealed(engine)
    most = 1 << 24
    for sizes in (
        {"max_logit_rows": most, "vocab_size": most},
        {"max_batch_size": most, "max_num_tokens": most, "max_logit_rows": most, "max_seq_len": most},
    ):
        sealed.write(replace(sealed.plan, facts=replace(sealed.plan.facts, **sizes), calls=()))
        with pytest.raises(ExecutorError, match=r"does not fit into the \d+ bytes of available memory"):
            sealed.execute()


def test_step_inputs_are_told_apart_by_their_index(engine: Path) -> None:
    sealed = Sealed(engine)
    embedding = next(call for call in sealed.plan.calls if call.op is Op.EMBEDDING)
    ids = replace(embedding.operands[0], index=StepInput.POSITION_IDS)
    swapped = replace(embedding, operands=(ids, *embedding.operands[1:]))
    sealed.write(replace(sealed.plan, calls=(swapped, *sealed.plan.calls[1:])))
    with pytest.raises(EngineError, match="has inconsistent ids"):
        sealed.load()
