import pytest

from trtc import RequestError, SamplingParams


def test_defaults_are_those_of_tensorrt_llm():
    params = SamplingParams()
    assert (params.max_tokens, params.n, params.end_id, params.temperature) == (32, 1, None, None)
    assert params.is_greedy and params.detokenize and params.skip_special_tokens and params.add_special_tokens


@pytest.mark.parametrize(
    ("fields", "greedy"),
    [
        ({}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0.8, "top_k": 1}, True),
        ({"temperature": 0.8}, False),
        ({"top_k": 40}, False),
        ({"top_p": 0.9}, False),
        ({"min_p": 0.1}, False),
        ({"seed": 3, "repetition_penalty": 1.1}, True),
    ],
)
def test_sampling_is_greedy_unless_a_distribution_is_asked_for(fields, greedy):
    assert SamplingParams(**fields).is_greedy is greedy


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "SamplingParams.max_tokens: got 0"),
        ({"temperature": -0.5}, "SamplingParams.temperature: got -0.5"),
        ({"temperature": float("nan")}, "SamplingParams.temperature: got nan"),
        ({"top_k": -1}, "SamplingParams.top_k: got -1"),
        ({"top_p": 0.0}, "SamplingParams.top_p: got 0.0"),
        ({"top_p": 1.5}, "SamplingParams.top_p: got 1.5"),
        ({"min_p": 2}, "SamplingParams.min_p: got 2"),
        ({"seed": -1}, "SamplingParams.seed: got -1"),
        ({"repetition_penalty": 0}, "SamplingParams.repetition_penalty: got 0"),
        ({"presence_penalty": float("inf")}, "SamplingParams.presence_penalty: got inf"),
        ({"stop": ""}, "SamplingParams.stop: got ''"),
        ({"stop": ["x", ""]}, "SamplingParams.stop: got ''"),
        ({"stop": [5]}, "SamplingParams.stop: got 5"),
        ({"stop_token_ids": [-1]}, "SamplingParams.stop_token_ids: got -1"),
        ({"logprobs": -1}, "SamplingParams.logprobs: got -1"),
        ({"max_tokens": 2**40}, "SamplingParams.max_tokens"),
        ({"beam_width": 4}, "SamplingParams.beam_width: no such field"),
        ({"use_beam_search": True}, "SamplingParams.use_beam_search: no such field"),
        ({"n": 2}, "n: got 2 with greedy sampling"),
        ({"n": 2, "temperature": 1.0, "best_of": 3}, "best_of: got 3 with n 2"),
        ({"min_tokens": 33}, "min_tokens: got 33, expected at most max_tokens 32"),
        ({"stop": "x", "detokenize": False}, "stop: stop strings are found in the text"),
    ],
)
def test_a_wrong_value_is_refused_by_name(fields, message):
    with pytest.raises(RequestError) as raised:
        SamplingParams(**fields)
    assert message in str(raised.value)


def test_every_wrong_field_is_named():
    with pytest.raises(RequestError, match=r"max_tokens: got 0.*; .*top_p: got 7"):
        SamplingParams(max_tokens=0, top_p=7)


def test_params_cannot_be_changed_after_they_were_checked():
    with pytest.raises(Exception, match="frozen"):
        SamplingParams().max_tokens = 5


def test_one_stop_string_is_as_a_list_of_one():
    assert SamplingParams(stop="x") == SamplingParams(stop=["x"])
    assert SamplingParams(stop="x").stop == ("x",)
