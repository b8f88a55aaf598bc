"""One request, one seed, one engine: the same tokens and the same logits, bit for bit, whatever else goes on."""

import numpy as np
import pytest

from tests.e2e.prompts import PROMPTS
from trtc import LLM, KvCacheConfig, SamplingParams, SchedulerConfig

KINDS = ["chat", "python", "one token", "chinese", "long"]
GREEDY = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=2, return_generation_logits=True)
SAMPLED = GREEDY.model_copy(update={"temperature": 0.9, "top_p": 0.95, "seed": 1234})
NO_REUSE = KvCacheConfig(max_tokens=8192, enable_block_reuse=False)
REUSE = KvCacheConfig(max_tokens=8192)


@pytest.fixture(scope="module", params=["smollm2_float32", "smollm2_int4", "smollm2_int4_int8"])
def engine(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def alone(engine):
    """(kind, params) -> the output of that request when nothing else ever ran."""
    with LLM(engine, kv_cache_config=NO_REUSE, num_threads=1) as llm:
        return {
            (kind, params.temperature): llm.generate(PROMPTS[kind], params).outputs[0]
            for kind in KINDS
            for params in (GREEDY, SAMPLED)
        }


def assert_same(output, expected):
    assert output.token_ids == expected.token_ids
    np.testing.assert_array_equal(output.generation_logits, expected.generation_logits)
    assert output.logprobs == expected.logprobs
    assert output.text == expected.text


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_batch_of_sixteen_gives_what_each_gives_alone(engine, alone, params):
    kinds = (KINDS * 4)[:16]
    with LLM(engine, kv_cache_config=NO_REUSE) as llm:
        requests = llm.generate([PROMPTS[kind] for kind in kinds], params)
    for kind, request in zip(kinds, requests, strict=True):
        assert_same(request.outputs[0], alone[kind, params.temperature])


@pytest.mark.parametrize("max_num_tokens", [1, 7, 64, 512])
def test_the_size_of_prefill_chunks_changes_nothing(engine, alone, max_num_tokens):
    scheduler = SchedulerConfig(max_num_tokens=max_num_tokens, max_batch_size=min(max_num_tokens, 4))
    with LLM(engine, kv_cache_config=NO_REUSE, scheduler_config=scheduler) as llm:
        for kind, request in zip(KINDS, llm.generate([PROMPTS[kind] for kind in KINDS], GREEDY), strict=True):
            assert_same(request.outputs[0], alone[kind, None])


def test_a_cached_prefix_changes_nothing(engine, alone):
    with LLM(engine, kv_cache_config=REUSE) as llm:
        for params in (GREEDY, GREEDY, SAMPLED):
            output = llm.generate(PROMPTS["long"], params).outputs[0]
            assert_same(output, alone["long", params.temperature])
        assert llm.get_stats()[-1]["kvCacheStats"]["reusedBlocks"] > 0


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_number_of_threads_changes_nothing(engine, alone, num_threads):
    with LLM(engine, kv_cache_config=NO_REUSE, num_threads=num_threads) as llm:
        for kind in ("chat", "long"):
            assert_same(llm.generate(PROMPTS[kind], SAMPLED).outputs[0], alone[kind, SAMPLED.temperature])


def test_the_seed_decides_what_is_sampled(engine):
    with LLM(engine, kv_cache_config=REUSE) as llm:
        texts = [
            llm.generate(PROMPTS["story"], SAMPLED.model_copy(update={"seed": seed})).outputs[0].text
            for seed in (1, 2, 1)
        ]
    assert texts[0] == texts[2] != texts[1]
