"""What the executor refuses at the door, field by field, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from trtc import _core
from trtc._test_executor import ScriptedLoop, ScriptedModel
from trtc.errors import ExecutorError, RequestError

NAN = float("nan")


def loop(model: dict[str, Any] | None = None, **config: Any) -> ScriptedLoop:
    return ScriptedLoop(ScriptedModel(**(model or {})), _core.ExecutorConfig(**config))


def add(to: ScriptedLoop, prompt: list[int] | None = None, **fields: Any) -> None:
    sampling = _core.SamplingConfig(**fields.pop("sampling", {}))
    output = _core.OutputConfig(**fields.pop("output", {}))
    prompt = [1, 2, 3] if prompt is None else prompt
    to.add(1, _core.Request(input_token_ids=prompt, sampling_config=sampling, output_config=output, **fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": []}, "input_token_ids is empty"),
        ({"prompt": [1] * 64}, "input_token_ids has 64 tokens; expected at most 63"),
        ({"prompt": [1, 32]}, r"input_token_ids\[1\] is 32; expected a token id below the vocabulary size 32"),
        ({"prompt": [-1]}, r"input_token_ids\[0\] is -1"),
        ({"max_tokens": 0}, "max_tokens is 0; expected 1 or more"),
        ({"max_tokens": 62}, "max_tokens is 62 but the prompt of 3 tokens leaves room for 61 .* max_seq_len 64"),
        ({"max_tokens": 2**31 - 1}, "max_tokens is 2147483647 but"),
        ({"end_id": 32}, r"end_id\[0\] is 32"),
        ({"stop_token_ids": [3, -2]}, r"stop_token_ids\[1\] is -2"),
        ({"stop_words": [[1], []]}, r"stop_words\[1\] is empty"),
        ({"stop_words": [[1, 99]]}, r"stop_words\[0\]\[1\] is 99"),
        ({"bad_words": [[]]}, r"bad_words\[0\] is empty"),
        ({"bad_words": [[99]]}, r"bad_words\[0\]\[0\] is 99"),
        ({"sampling": {"num_return_sequences": 0}}, "num_return_sequences is 0; expected 1 to the batch size 4"),
        ({"sampling": {"num_return_sequences": 5}}, "num_return_sequences is 5"),
        ({"sampling": {"temperature": -0.5}}, r"temperature is -0.5; expected 0 \(greedy\) or more"),
        ({"sampling": {"temperature": NAN}}, "temperature is nan"),
        ({"sampling": {"top_k": -1}}, r"top_k is -1; expected 0 \(off\) or more"),
        ({"sampling": {"top_p": 0.0}}, "top_p is 0; expected more than 0 and at most 1"),
        ({"sampling": {"top_p": 1.5}}, "top_p is 1.5"),
        ({"sampling": {"min_p": -0.1}}, "min_p is -0.1; expected 0 to 1"),
        ({"sampling": {"repetition_penalty": 0.0}}, "repetition_penalty is 0; expected more than 0"),
        ({"sampling": {"presence_penalty": float("inf")}}, "presence_penalty is inf; expected a finite number"),
        ({"sampling": {"frequency_penalty": NAN}}, "frequency_penalty is nan"),
        ({"sampling": {"min_tokens": 17}}, "min_tokens is 17; expected 0 to max_tokens 16"),
        ({"output": {"log_probs": -1}}, "log_probs is -1; expected 0 to the vocabulary size 32"),
        ({"output": {"prompt_log_probs": 33}}, "prompt_log_probs is 33"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_is_expected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        add(loop(), **fields)


def test_a_request_that_can_never_fit_the_cache_is_refused() -> None:
    small = loop(kv_cache_config=_core.KvCacheConfig(max_tokens=64))
    with pytest.raises(RequestError, match="can come to need 30 KV cache blocks but there are 16"):
        add(small, max_tokens=58, sampling={"num_return_sequences": 2, "temperature": 1.0})


def test_without_chunked_prefill_a_prompt_must_fit_one_step() -> None:
    whole = loop({"max_logit_rows": 8}, scheduler_config=_core.SchedulerConfig(enable_chunked_prefill=False))
    add(whole, [1] * 16)
    with pytest.raises(RequestError, match="17 tokens but a step takes max_num_tokens 16 and chunked prefill is off"):
        add(whole, [1] * 17)
    with pytest.raises(RequestError, match=r"logits of all 9 prompt tokens .* a step gives 8 rows"):
        add(whole, [1] * 9, output={"prompt_log_probs": 0})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"scheduler_config": _core.SchedulerConfig(max_batch_size=5)}, "max_batch_size is 5; expected 1 to .* own 4"),
        ({"scheduler_config": _core.SchedulerConfig(max_num_tokens=0)}, "max_num_tokens is 0; expected 1 to .* own 16"),
        (
            {"scheduler_config": _core.SchedulerConfig(max_batch_size=4, max_num_tokens=3)},
            "max_batch_size is 4 but max_num_tokens is 3",
        ),
        ({"kv_cache_config": _core.KvCacheConfig(max_tokens=63 - 3)}, "one sequence of max_seq_len 64 needs 16 blocks"),
        ({"num_threads": -1}, "num_threads is -1; expected 0 or more"),
        ({"max_queue_size": 0}, "max_queue_size is 0; expected 1 or more"),
        ({"iter_stats_max_iterations": -1}, "iter_stats_max_iterations is -1; expected 0 or more"),
    ],
)
def test_a_bad_setting_is_refused_with_the_limits(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ExecutorError, match=message):
        loop(**config)
