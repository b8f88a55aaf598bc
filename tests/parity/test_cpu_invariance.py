"""A sequence has bit-identical logits whatever shares its batch, however its prompt is cut, on any thread count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.parity.cases import CASES, ParityCase
from tests.parity.cpu_engine import ENGINE_BLOCK_SIZE, CpuRunner, build_case_engine
from tests.parity.harness import DECODED, Array, collect_logits, packed_steps
from trtc.errors import EngineError

BY_NAME = {case.name: case for case in CASES}
LENGTHS = (1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 21, 29, 31, 33, 48, 64)  # of 16 prompts
WHOLE = max(LENGTHS)
NUM_BLOCKS = 80
ISAS = ("portable", "avx2", "avx512", "avx512_bf16")
ENGINES = {
    "float32": ("llama", {}),
    "bfloat16": ("llama", {"dtype": "bfloat16"}),
    "w8a16": ("llama-biases", {"quant": {"quant_algo": "w8a16"}}),
    "w8a8": ("llama-biases", {"quant": {"quant_algo": "w8a8"}}),
    "w4a16": ("llama-biases", {"quant": {"quant_algo": "w4a16", "group_size": 64}}),
    "w4a8": ("llama-biases", {"quant": {"quant_algo": "w4a8", "group_size": 64}, "kv_cache_dtype": "bfloat16"}),
    "gemma3": ("gemma3-softcaps", {}),
    "gpt2": ("gpt2", {"quant": {"quant_algo": "w8a8"}}),
}
# Largest difference between two ISAs by the largest logit: rounding of sums in another order and, for bfloat16's
# dot product and int8 activations, of inputs that land on the other side of a rounding step.
ACROSS_ISAS = {"float32": 1e-5, "gemma3": 1e-5, "w8a16": 1e-5, "w4a16": 1e-5}
ACROSS_ISAS_ROUNDED = 3e-2

Logits = Mapping[tuple[int, int], Array]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Engine directory by name, each built when first asked for."""

    class Engines(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            case, settings = ENGINES[name]
            fields = {"max_num_tokens": 2048, "max_batch_size": 16, **settings}
            self[name] = build_case_engine(BY_NAME[case], tmp_path_factory.mktemp(name), **fields)
            return self[name]

    return Engines()


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return use_isa(request.param, monkeypatch)


def use_isa(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Force an instruction set level; skips the test where this machine lacks it."""
    from trtc import _core

    monkeypatch.setenv("TRTC_CPU_ISA", name)
    try:
        return str(_core.selected_isa())
    except EngineError as error:
        pytest.skip(str(error))


def sequences(case: ParityCase) -> list[list[int]]:
    rng = np.random.default_rng(11)
    return [rng.integers(0, 256, length + DECODED).tolist() for length in LENGTHS]


def batched(engine: Path, tokens: list[list[int]], chunk: int, threads: int = 1) -> Logits:
    steps = packed_steps(tokens, chunk, all_rows=False, block_size=ENGINE_BLOCK_SIZE, num_blocks=NUM_BLOCKS)
    return collect_logits(CpuRunner(engine, threads, NUM_BLOCKS), steps)


def alone(engine: Path, tokens: list[list[int]]) -> Logits:
    """Every sequence in a cache of its own, its prompt in one step."""
    logits: dict[tuple[int, int], Array] = {}
    for index, sequence in enumerate(tokens):
        one = batched(engine, [sequence], WHOLE)
        logits.update({(index, position): row for (_, position), row in one.items()})
    return logits


def assert_same_bits(got: Logits, expected: Logits) -> None:
    shared = got.keys() & expected.keys()
    assert len(shared) >= len(LENGTHS) * DECODED
    different = [key for key in sorted(shared) if got[key].tobytes() != expected[key].tobytes()]
    assert not different, f"(sequence, position) with other logits: {different}"


@pytest.mark.parametrize("name", ENGINES)
def test_logits_do_not_depend_on_batch_chunks_or_threads(name: str, engines: Mapping[str, Path], isa: str) -> None:
    tokens = sequences(BY_NAME[ENGINES[name][0]])
    expected = alone(engines[name], tokens)
    for chunk in (1, 7, 64, WHOLE):
        assert_same_bits(batched(engines[name], tokens, chunk), expected)
    assert_same_bits(batched(engines[name], tokens, 7, threads=2), expected)


@pytest.mark.parametrize("name", ENGINES)
def test_isa_levels_agree_within_rounding(
    name: str, engines: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = sequences(BY_NAME[ENGINES[name][0]])
    use_isa("portable", monkeypatch)
    expected = batched(engines[name], tokens, 64)
    for level in ISAS[1:]:
        use_isa(level, monkeypatch)
        got = batched(engines[name], tokens, 64)
        error = max(np.abs(got[key] - row).max() / np.abs(row).max() for key, row in expected.items())
        assert error <= ACROSS_ISAS.get(name, ACROSS_ISAS_ROUNDED), f"{level}: {error:.1e}"
