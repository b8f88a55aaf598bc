"""Each instruction set of this machine gives the same bits alone and in a batch, and nearly the logits of the best."""

import numpy as np
import pytest

from tests.e2e.prompts import PROMPTS
from trtc import LLM, KvCacheConfig, SamplingParams, _core

LEVELS = ["portable", "avx2", "avx512", "avx512_bf16"]
BATCH = [PROMPTS["fact"], PROMPTS["one token"]]
PARAMS = SamplingParams(max_tokens=2, ignore_eos=True, return_generation_logits=True)

# Largest relative distance of logits between instruction sets. With int8 activations a difference in a float's last
# bit can move a rounding by a whole step, and through 30 layers that grows to what quantization itself costs.
DISTANCE = {"smollm2_float32": 1e-4, "smollm2_int4": 0.15}


def generate(engine, prompts):
    with LLM(engine, kv_cache_config=KvCacheConfig(max_tokens=4096, enable_block_reuse=False)) as llm:
        return [request.outputs[0] for request in llm.generate(prompts, PARAMS)]


@pytest.fixture(scope="module", params=list(DISTANCE))
def engine(request):
    """(engine, its outputs with the best instruction set, allowed distance)"""
    path = request.getfixturevalue(request.param)
    return path, generate(path, BATCH), DISTANCE[request.param]


@pytest.mark.parametrize("level", LEVELS)
def test_an_isa_agrees_with_itself_and_nearly_with_the_best(engine, monkeypatch, level):
    if LEVELS.index(level) > LEVELS.index(_core.selected_isa()):
        pytest.skip(f"this machine has no {level}")
    path, best, distance = engine
    monkeypatch.setenv("TRTC_CPU_ISA", level)
    together = generate(path, BATCH)
    (alone,) = generate(path, BATCH[:1])
    assert alone.token_ids == together[0].token_ids
    np.testing.assert_array_equal(alone.generation_logits, together[0].generation_logits)
    for output, reference in zip(together, best, strict=True):
        first, expected = output.generation_logits[0], reference.generation_logits[0]
        assert np.linalg.norm(first - expected) <= distance * np.linalg.norm(expected)
