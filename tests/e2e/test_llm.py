"""The LLM API over the demo model."""

import asyncio
import math
import subprocess
import sys

import numpy as np
import pytest

from tests.e2e.prompts import PROMPTS
from trtc import (
    LLM,
    BuildConfig,
    ConfigError,
    EngineError,
    ExecutorError,
    KvCacheConfig,
    QuantConfig,
    RequestError,
    SamplingParams,
)

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def llm(smollm2_int4):
    with LLM(smollm2_int4, kv_cache_config=KvCacheConfig(max_tokens=16384)) as llm:
        yield llm


def test_one_prompt_gives_one_output_and_a_list_gives_a_list(llm):
    request = llm.generate(PROMPTS["fact"])
    assert request.prompt == PROMPTS["fact"] and request.finished
    assert request.prompt_token_ids == llm.tokenizer.encode(PROMPTS["fact"])
    assert request.outputs[0].length <= 32
    again, other = llm.generate([request.prompt_token_ids, PROMPTS["list"]])
    assert again.outputs[0].token_ids == request.outputs[0].token_ids and again.prompt is None
    assert other.outputs[0].text != request.outputs[0].text
    assert llm.generate([]) == []


def test_chat_knows_paris_and_ends_by_itself(llm):
    by_chat = llm.chat(QUESTION, SamplingParams(max_tokens=64))
    by_generate = llm.generate(QUESTION, SamplingParams(max_tokens=64))
    assert "Paris" in by_chat.outputs[0].text
    assert (by_chat.outputs[0].finish_reason, by_chat.outputs[0].stop_reason) == ("stop", None)
    assert "<|im_end|>" not in by_chat.outputs[0].text
    assert by_generate.outputs[0].token_ids == by_chat.outputs[0].token_ids
    assert [request.outputs[0].text for request in llm.chat([QUESTION, QUESTION], SamplingParams(max_tokens=64))] == [
        by_chat.outputs[0].text
    ] * 2


def test_ignore_eos_goes_on_to_max_tokens(llm):
    output = llm.generate(QUESTION, SamplingParams(max_tokens=64, ignore_eos=True)).outputs[0]
    assert (output.finish_reason, output.length) == ("length", 64)


def test_sampling_params_may_differ_by_prompt(llm):
    short, long = llm.generate(["a", "b"], [SamplingParams(max_tokens=2), SamplingParams(max_tokens=5)])
    assert (short.outputs[0].length, long.outputs[0].length) == (2, 5)
    with pytest.raises(RequestError, match="got 1 for 2 prompts"):
        llm.generate(["a", "b"], [SamplingParams()])


def test_stop_strings_end_text_across_token_borders(llm):
    whole = llm.generate(PROMPTS["story"], SamplingParams(max_tokens=40)).outputs[0].text
    stop = whole[30:37]
    output = llm.generate(PROMPTS["story"], SamplingParams(max_tokens=40, stop=[stop, "never said"])).outputs[0]
    assert output.text == whole[: whole.index(stop)]
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    kept = llm.generate(
        PROMPTS["story"], SamplingParams(max_tokens=40, stop=stop, include_stop_str_in_output=True)
    ).outputs[0]
    assert kept.text == output.text + stop


def test_a_stop_token_ends_the_output_and_is_its_reason(llm):
    tokens = llm.generate(PROMPTS["story"], SamplingParams(max_tokens=10)).outputs[0].token_ids
    output = llm.generate(PROMPTS["story"], SamplingParams(max_tokens=10, stop_token_ids=[tokens[4]])).outputs[0]
    assert output.token_ids == tokens[: tokens.index(tokens[4]) + 1]
    assert (output.finish_reason, output.stop_reason) == ("stop", tokens[4])


def test_bad_words_are_not_said(llm):
    assert "Paris" in llm.chat(QUESTION, SamplingParams(max_tokens=16)).outputs[0].text
    assert "Paris" not in llm.chat(QUESTION, SamplingParams(max_tokens=16, bad="Paris")).outputs[0].text


def test_several_outputs_differ_and_the_first_is_as_if_alone(llm):
    params = SamplingParams(max_tokens=16, temperature=1.2, seed=5)
    several = llm.generate(PROMPTS["story"], params.model_copy(update={"n": 3}))
    texts = [output.text for output in several.outputs]
    assert len(set(texts)) == 3 and [output.index for output in several.outputs] == [0, 1, 2]
    assert llm.generate(PROMPTS["story"], params).outputs[0].text == texts[0]


def test_logprobs_hold_the_chosen_token_and_the_best(llm):
    request = llm.generate(PROMPTS["fact"], SamplingParams(max_tokens=6, logprobs=3, prompt_logprobs=1))
    output = request.outputs[0]
    assert len(output.logprobs) == output.length
    for token, entry in zip(output.token_ids, output.logprobs, strict=True):
        assert next(iter(entry)) == token and entry[token].rank == 1 and len(entry) == 3
        assert all(value.logprob <= 0 for value in entry.values())
    assert output.cumulative_logprob == pytest.approx(
        sum(entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True))
    )
    assert len(request.prompt_logprobs) == len(request.prompt_token_ids) - 1
    for token, entry in zip(request.prompt_token_ids[1:], request.prompt_logprobs, strict=True):
        assert token in entry and min(value.rank for value in entry.values()) == 1


def test_logits_have_a_row_for_each_token(llm):
    request = llm.generate(
        PROMPTS["fact"],
        SamplingParams(max_tokens=4, logprobs=0, return_context_logits=True, return_generation_logits=True),
    )
    output, vocab = request.outputs[0], llm.tokenizer.vocab_size
    assert request.context_logits.shape == (len(request.prompt_token_ids), vocab)
    assert output.generation_logits.shape == (4, vocab) and output.generation_logits.dtype == np.float32
    np.testing.assert_array_equal(request.context_logits[-1], output.generation_logits[0])
    row = output.generation_logits[0].astype(np.float64)
    expected = row.max() - np.log(np.exp(row - row.max()).sum()) - row.max()
    assert math.isclose(output.logprobs[0][output.token_ids[0]].logprob, expected, abs_tol=1e-5)


def test_an_async_iteration_streams_the_same_text(llm):
    expected = llm.generate(QUESTION, SamplingParams(max_tokens=48)).outputs[0]

    async def stream():
        pieces, tokens = [], []
        async for request in llm.generate_async(QUESTION, SamplingParams(max_tokens=48)):
            pieces.append(request.outputs[0].text_diff)
            tokens += request.outputs[0].token_ids_diff
        return pieces, tokens

    async def together():
        return await asyncio.gather(*[stream() for _ in range(4)])

    for pieces, tokens in asyncio.run(together()):
        assert "".join(pieces) == expected.text and tokens == expected.token_ids
        assert len(pieces) > 1


def test_an_abandoned_stream_frees_the_executor(llm):
    async def leave():
        async for _ in llm.generate_async("Count:", SamplingParams(max_tokens=1500, ignore_eos=True)):
            return

    asyncio.run(leave())
    assert llm.generate("Hello", SamplingParams(max_tokens=1)).finished
    assert llm.get_stats()[-1]["numActiveRequests"] <= 1


def test_abort_ends_a_request_as_cancelled(llm):
    request = llm.generate_async("Count:", SamplingParams(max_tokens=1500, ignore_eos=True))
    next(iter(request))
    llm.abort(request.request_id)
    for unknown in (123456789, -1, 2**70):
        llm.abort(unknown)


@pytest.mark.parametrize("params", ["x", 5, {"max_tokens": 3}, [SamplingParams(), 5]])
def test_sampling_params_of_another_kind_are_refused(llm, params):
    with pytest.raises(RequestError, match="sampling_params: got"):
        llm.generate(["a", "b"], params)
    with pytest.raises(RequestError, match="sampling_params: got"):
        llm.generate_async("a", params)


@pytest.mark.parametrize("salt", [5, b"salt", "\ud800"])
def test_a_cache_salt_that_is_no_text_is_refused(llm, salt):
    with pytest.raises(RequestError, match=r"cache_salt: got .*, expected text"):
        llm.generate("a", cache_salt=salt)


def test_chat_gives_the_rendered_text_as_the_prompt(llm):
    request = llm.chat(QUESTION, SamplingParams(max_tokens=1))
    assert request.prompt == llm.tokenizer.apply_chat_template(QUESTION)
    assert request.prompt_token_ids == llm.generate(QUESTION, SamplingParams(max_tokens=1)).prompt_token_ids


def test_stats_have_tensorrt_llm_names(llm):
    llm.get_stats()
    llm.generate(["a", "b"], SamplingParams(max_tokens=4))
    stats = llm.get_stats()
    assert sum(entry["inflightBatchingStats"]["numGenTokens"] for entry in stats) >= 6
    assert stats[-1]["iter"] > stats[0]["iter"] and stats[-1]["kvCacheStats"]["maxNumBlocks"] > 0
    assert llm.get_stats() == []


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([10**6], {}, "token"),
        ([5] * 3000, {}, "max_seq_len|2048"),
        ("hi", {"max_tokens": 5000}, "max_tokens"),
        ("hi", {"end_id": 10**6}, "end_id"),
        ("hi", {"n": 17, "temperature": 1.0}, "17"),
    ],
)
def test_what_the_engine_can_never_serve_is_refused_at_once(llm, prompt, params, message):
    with pytest.raises(RequestError, match=message):
        llm.generate(prompt, SamplingParams(**params))
    with pytest.raises(RequestError, match=r"^inputs\[1\]: "):
        llm.generate(["fine", prompt], [SamplingParams(), SamplingParams(**params)])


def test_save_copies_an_engine_that_runs(llm, tmp_path):
    llm.save(tmp_path / "deep" / "copy")
    with LLM(tmp_path / "deep" / "copy", kv_cache_config=KvCacheConfig(max_tokens=2048)) as copy:
        assert (
            copy.generate("Hello", SamplingParams(max_tokens=4)).outputs[0].token_ids
            == llm.generate("Hello", SamplingParams(max_tokens=4)).outputs[0].token_ids
        )
    with pytest.raises(EngineError, match="exists; save to a new directory"):
        llm.save(tmp_path / "deep" / "copy")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["copy"]


def test_an_engine_is_not_saved_into_itself(llm):
    before = sorted(llm.engine_dir.iterdir())
    with pytest.raises(EngineError, match="lies inside the engine"):
        llm.save(llm.engine_dir / "deep" / "copy")
    assert sorted(llm.engine_dir.iterdir()) == before


def test_token_ids_need_no_tokenizer(smollm2_int4, llm):
    ids = llm.tokenizer.encode("Hello")
    with LLM(smollm2_int4, skip_tokenizer_init=True, kv_cache_config=KvCacheConfig(max_tokens=2048)) as bare:
        output = bare.generate(ids, SamplingParams(max_tokens=4)).outputs[0]
        assert output.text == "" and output.length == 4
        for prompt, params in [("Hello", {}), (ids, {"stop": "x"}), (ids, {"bad": "x"})]:
            with pytest.raises(RequestError, match="tokenizer"):
                bare.generate(prompt, SamplingParams(**params))


def test_a_closed_llm_says_so(smollm2_int4):
    llm = LLM(smollm2_int4, kv_cache_config=KvCacheConfig(max_tokens=2048))
    llm.shutdown()
    llm.shutdown()
    with pytest.raises(ExecutorError, match="shut down"):
        llm.generate("Hello")


@pytest.mark.parametrize(
    "settings", [{"dtype": "float32"}, {"quant_config": QuantConfig()}, {"build_config": BuildConfig()}]
)
def test_build_settings_do_not_go_with_a_built_engine(smollm2_int4, settings):
    with pytest.raises(ConfigError, match="is a built engine"):
        LLM(smollm2_int4, **settings)


@pytest.mark.parametrize(
    "settings", [{"kv_cache_config": 5}, {"scheduler_config": [1]}, {"kv_cache_config": {"max_token": 1}}]
)
def test_settings_of_another_kind_are_refused(smollm2_int4, settings):
    with pytest.raises(ConfigError, match=r"expected|no such field"):
        LLM(smollm2_int4, **settings)


@pytest.mark.parametrize("num_threads", [-1, 100_000, "2", 1.5, True])
def test_an_impossible_number_of_threads_is_refused(smollm2_int4, num_threads):
    with pytest.raises(ConfigError, match=f"num_threads: got {num_threads!r}, expected 0"):
        LLM(smollm2_int4, num_threads=num_threads)


def test_a_model_is_built_into_the_cache_once(smollm2, tmp_path, monkeypatch):
    monkeypatch.setenv("TRTC_CACHE_DIR", str(tmp_path))
    stages = []
    settings = {
        "quant_config": QuantConfig(quant_algo="w4a8"),
        "build_config": BuildConfig(max_seq_len=256),
        "kv_cache_config": KvCacheConfig(max_tokens=1024),
    }
    with LLM(smollm2, **settings, progress=lambda stage, done, total: stages.append(stage)) as llm:
        assert llm.build_config.quant.quant_algo == "w4a8" and llm.max_seq_len == 256
        text = llm.generate("Hello", SamplingParams(max_tokens=4)).outputs[0].text
    assert stages
    stages.clear()
    with LLM(smollm2, **settings, progress=lambda stage, done, total: stages.append(stage)) as llm:
        assert llm.generate("Hello", SamplingParams(max_tokens=4)).outputs[0].text == text
    assert not stages


def test_several_ranks_are_refused_for_now(smollm2, tmp_path, monkeypatch):
    monkeypatch.setenv("TRTC_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="tp_size"):
        LLM(smollm2, tensor_parallel_size=2)


SERVING = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "onnx", "onnx_ir", "gguf", "safetensors", "ml_dtypes"}:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, Absent())
from trtc import LLM, KvCacheConfig, SamplingParams
with LLM(sys.argv[1], kv_cache_config=KvCacheConfig(max_tokens=2048)) as llm:
    print(llm.chat([{"role": "user", "content": "What is the capital of France?"}]).outputs[0].text)
"""


def test_serving_works_where_nothing_for_building_is_installed(smollm2_int4):
    done = subprocess.run([sys.executable, "-c", SERVING, str(smollm2_int4)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


MAPPED = """
import sys
from trtc import LLM, KvCacheConfig, SamplingParams
llm = LLM(sys.argv[1], kv_cache_config=KvCacheConfig(max_tokens=2048))
llm.generate("Hello", SamplingParams(max_tokens=2))
dirty = inside = 0
for line in open("/proc/self/smaps"):
    first = line.split()[0]
    if "-" in first:
        inside = line.rstrip().endswith("rank0.engine")
    elif inside and first in ("Private_Dirty:", "Size:"):
        dirty += int(line.split()[1]) if first == "Private_Dirty:" else 0
        mapped = line
print(dirty)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_mapped_and_never_copied(smollm2_int4):
    done = subprocess.run([sys.executable, "-c", MAPPED, str(smollm2_int4)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]


FORKED = """
import os, signal, sys
from trtc import LLM, ExecutorError, SamplingParams

llm = LLM(sys.argv[1], kv_cache_config={"max_tokens": 2048})
long = SamplingParams(max_tokens=300, ignore_eos=True)
pending = llm.generate_async("Hi", long)
child = os.fork()
if child == 0:
    signal.alarm(60)
    for use in (pending.result, lambda: llm.generate("Hi"), llm.get_stats):
        try:
            use()
        except ExecutorError as error:
            print("refused" if "fork" in str(error) else error)
    llm.abort(1)
    llm.shutdown()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pending.result().outputs[0].length)
"""


def test_the_child_of_a_fork_is_refused_and_ends_and_the_parent_goes_on(smollm2_int4):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(smollm2_int4)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["refused"] * 3 + ["7", "300"], done.stderr


def test_an_llm_that_is_never_closed_does_not_hold_up_the_exit(smollm2_int4):
    code = (
        "import sys; from trtc import LLM, KvCacheConfig, SamplingParams;"
        "llm = LLM(sys.argv[1], kv_cache_config=KvCacheConfig(max_tokens=2048));"
        "llm.generate_async('Hi', SamplingParams(max_tokens=500, ignore_eos=True))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(smollm2_int4)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
