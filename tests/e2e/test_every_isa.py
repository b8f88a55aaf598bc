"""Each instruction set of this machine gives the same bits alone and in a batch, and nearly the logits of the best."""

import numpy as np
import pytest

from tests.e2e.prompts import PROMPTS
from trtc import LLM, KvCacheConfig, SamplingParams, _core

LEVELS = ["portable", "avx2", "avx512", "avx512_bf16"]
KINDS = ["one token", "fact", "chinese"]
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True, return_generation_logits=True)


def generate(engine, prompts):
    with LLM(engine, kv_cache_config=KvCacheConfig(max_tokens=4096, enable_block_reuse=False)) as llm:
        return [request.outputs[0] for request in llm.generate(prompts, PARAMS)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["smollm2_float32", "smollm2_int4"])
def test_an_isa_agrees_with_itself_and_nearly_with_the_best(request, monkeypatch, name, level):
    if LEVELS.index(level) > LEVELS.index(_core.selected_isa()):
        pytest.skip(f"this machine has no {level}")
    engine = request.getfixturevalue(name)
    prompts = [PROMPTS[kind] for kind in KINDS]
    best = generate(engine, prompts)
    monkeypatch.setenv("TRTC_CPU_ISA", level)
    together = generate(engine, prompts)
    for prompt, output in zip(prompts[:2], together, strict=False):
        (alone,) = generate(engine, [prompt])
        assert alone.token_ids == output.token_ids
        np.testing.assert_array_equal(alone.generation_logits, output.generation_logits)
    for output, reference in zip(together, best, strict=True):
        first, expected = output.generation_logits[0], reference.generation_logits[0]
        np.testing.assert_allclose(first, expected, atol=2e-2 * np.abs(expected).max())
