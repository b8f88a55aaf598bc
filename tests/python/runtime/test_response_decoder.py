import numpy as np
import pytest

from tests.python.runtime.scripted_executor import TokenLogProbs, response
from tests.tiny_models import EOS
from trtc import ExecutorError, SamplingParams
from trtc.runtime.outputs import CompletionOutput, Logprob
from trtc.runtime.response_decoder import ResponseDecoder


def decode_all(decoder, *responses):
    """The whole output of sequence 0, and whether each response brought an increment."""
    output, brought = CompletionOutput(0), []
    for each in responses:
        increment = decoder.decode(each)
        brought.append(increment is not None)
        if increment is not None and increment.sequence_index == 0:
            output.extend(increment)
    return output, brought


def test_tokens_become_text_and_the_finish_reason_is_translated(byte_tokenizer):
    for finish, expected in [
        ("END_ID", "stop"),
        ("LENGTH", "length"),
        ("CANCELLED", "cancelled"),
        ("TIMED_OUT", "timeout"),
    ]:
        decoder = ResponseDecoder(SamplingParams(), byte_tokenizer)
        output, _ = decode_all(decoder, response(1, b"hel"), response(1, b"lo", finish))
        assert (output.text, output.finish_reason, output.stop_reason) == ("hello", expected, None)
        assert decoder.finished


def test_the_end_token_stays_in_the_ids_and_out_of_the_text(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(), byte_tokenizer)
    output, _ = decode_all(decoder, response(1, [*b"hi", EOS], "END_ID"))
    assert (output.text, output.token_ids) == ("hi", [*b"hi", EOS])


def test_special_tokens_show_when_they_are_not_to_be_skipped(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(skip_special_tokens=False), byte_tokenizer)
    assert decode_all(decoder, response(1, [*b"hi", EOS], "END_ID"))[0].text == "hi</s>"


def test_a_stop_token_is_the_stop_reason(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop_token_ids=[ord("!")]), byte_tokenizer)
    output, _ = decode_all(decoder, response(1, b"hi!", "END_ID"))
    assert (output.text, output.finish_reason, output.stop_reason) == ("hi!", "stop", ord("!"))


@pytest.mark.parametrize("sizes", [[1] * 12, [12], [5, 7], [3, 3, 3, 3], [11, 1]])
def test_a_stop_string_ends_the_sequence_however_tokens_were_grouped(byte_tokenizer, sizes):
    tokens, responses = b"one STOP two", []
    for size in sizes:
        responses.append(response(1, tokens[:size]))
        tokens = tokens[size:]
    decoder = ResponseDecoder(SamplingParams(stop="STOP"), byte_tokenizer)
    output, _ = decode_all(decoder, *responses)
    assert (output.text, output.finish_reason, output.stop_reason) == ("one ", "stop", "STOP")
    assert bytes(output.token_ids) == b"one STOP"
    assert decoder.finished


def test_a_stop_string_may_stay_in_the_text(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop="STOP", include_stop_str_in_output=True), byte_tokenizer)
    assert decode_all(decoder, response(1, b"one STOP two"))[0].text == "one STOP"


def test_text_that_only_began_a_stop_string_is_given_at_the_end(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop="STOP"), byte_tokenizer)
    output, _ = decode_all(decoder, response(1, b"one STO"), response(1, b"", "LENGTH"))
    assert (output.text, output.finish_reason) == ("one STO", "length")


def test_a_stop_string_completed_by_the_last_token_wins_over_the_length(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop="STOP"), byte_tokenizer)
    output, _ = decode_all(decoder, response(1, b"one STOP", "LENGTH"))
    assert (output.text, output.finish_reason, output.stop_reason) == ("one ", "stop", "STOP")


def test_stop_strings_do_not_stop_before_min_tokens(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop="a", min_tokens=4), byte_tokenizer)
    output, _ = decode_all(decoder, response(1, b"aaabbab"))
    assert (output.text, bytes(output.token_ids)) == ("aaabb", b"aaabba")


def test_what_comes_after_a_stop_string_is_dropped(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop="."), byte_tokenizer)
    output, brought = decode_all(decoder, response(1, b"a."), response(1, b"b"), response(1, b"", "CANCELLED"))
    assert (output.text, output.finish_reason, brought) == ("a", "stop", [True, False, False])


def test_half_a_character_waits_for_its_rest_and_is_replaced_at_the_end(byte_tokenizer):
    first, second = "é".encode()
    decoder = ResponseDecoder(SamplingParams(), byte_tokenizer)
    assert decoder.decode(response(1, [first])).text == ""
    assert decoder.decode(response(1, [second])).text == "é"
    assert decoder.decode(response(1, [first], "LENGTH")).text == "�"


def test_sequences_end_one_by_one_and_the_request_with_the_last(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(n=2, temperature=1.0, stop="."), byte_tokenizer)
    first = decoder.decode(response(1, b"a.", sequence_index=1))
    assert (first.sequence_index, first.finish_reason, first.is_final) == (1, "stop", False)
    second = decoder.decode(response(1, b"b", "LENGTH", sequence_index=0, is_final=False))
    assert (second.sequence_index, second.finish_reason, second.is_final) == (0, "length", True)


def test_logprobs_are_by_token_with_ranks_and_sum_up(byte_tokenizer):
    entries = [
        TokenLogProbs([ord("a"), ord("b"), ord("a")], [-1.5, -0.5, -1.5], 2),
        TokenLogProbs([ord("c")], [-0.25], 1),
    ]
    decoder = ResponseDecoder(SamplingParams(logprobs=2), byte_tokenizer)
    output, _ = decode_all(
        decoder,
        response(1, b"a", log_probs=entries[:1], prompt_log_probs=[TokenLogProbs([7], [-3.0], 9)]),
        response(1, b"c", "LENGTH", log_probs=entries[1:]),
    )
    assert output.logprobs == [{97: Logprob(-1.5, 2), 98: Logprob(-0.5, 1)}, {99: Logprob(-0.25, 1)}]
    assert output.prompt_logprobs == [{7: Logprob(-3.0, 9)}]
    assert output.cumulative_logprob == -1.75


def test_logprobs_and_logits_of_tokens_past_a_stop_string_are_dropped(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(stop=".", logprobs=0), byte_tokenizer)
    entries = [TokenLogProbs([i], [-1.0]) for i in b"a.b"]
    logits = np.arange(6, dtype=np.float32).reshape(3, 2)
    output, _ = decode_all(decoder, response(1, b"a.b", log_probs=entries, generation_logits=logits))
    assert len(output.logprobs) == 2 and output.cumulative_logprob == -2.0
    np.testing.assert_array_equal(output.generation_logits, logits[:2])


def test_without_detokenization_there_are_ids_only(byte_tokenizer):
    for decoder in (
        ResponseDecoder(SamplingParams(detokenize=False), byte_tokenizer),
        ResponseDecoder(SamplingParams(), None),
    ):
        output, _ = decode_all(decoder, response(1, b"hi", "LENGTH"))
        assert (output.text, bytes(output.token_ids)) == ("", b"hi")


def test_an_error_of_the_executor_ends_the_request(byte_tokenizer):
    decoder = ResponseDecoder(SamplingParams(n=2, temperature=1.0), byte_tokenizer)
    increment = decoder.decode(response(1, error="out of memory"))
    assert increment.is_final and decoder.finished
    assert isinstance(increment.error, ExecutorError) and str(increment.error) == "out of memory"
