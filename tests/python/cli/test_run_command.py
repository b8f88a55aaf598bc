import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.python.cli.running import start_trtc, trtc
from trtc import LLM, KvCacheConfig, SamplingParams

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def expected(smollm2_int4):
    with LLM(smollm2_int4, kv_cache_config=KvCacheConfig(max_tokens=4096)) as llm:
        story = llm.generate("Once upon a time", SamplingParams(max_tokens=12)).outputs[0]
        answer = llm.generate([{"role": "user", "content": QUESTION}], SamplingParams(max_tokens=64)).outputs[0]
        messages = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": answer.text.strip()},
            {"role": "user", "content": "And of Italy?"},
        ]
        second = llm.generate(messages, SamplingParams(max_tokens=64)).outputs[0]
        return {"story": story, "answer": answer, "second answer": second}


def test_a_prompt_is_continued_on_stdout_and_timed_on_stderr(smollm2_int4, expected):
    done = trtc("run", smollm2_int4, "--prompt", "Once upon a time", "--max-tokens", 12)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected["story"].text + "\n"
    assert "12 tokens" in done.stderr and "tokens/s" in done.stderr


def test_standard_input_is_a_prompt(smollm2_int4, expected):
    done = trtc("run", smollm2_int4, "--max-tokens", 12, stdin="Once upon a time\n")
    assert done.stdout == expected["story"].text + "\n"


def test_chat_with_a_prompt_answers_one_question(smollm2_int4, expected):
    done = trtc("run", smollm2_int4, "--chat", "--prompt", QUESTION)
    assert done.stdout == expected["answer"].text + "\n" and "Paris" in done.stdout


def test_json_holds_text_tokens_and_timing(smollm2_int4, expected):
    done = trtc("run", smollm2_int4, "--prompt", "Once upon a time", "--max-tokens", 12, "--json")
    values = json.loads(done.stdout)
    assert values["text"] == expected["story"].text and values["token_ids"] == expected["story"].token_ids
    assert (values["finish_reason"], values["prompt_tokens"], values["output_tokens"]) == ("length", 4, 12)
    assert values["tokens_per_second"] > 0 and done.stderr == ""


def test_sampling_options_reach_the_sampler(smollm2_int4):
    options = ["--temperature=1.5", "--top-k=50", "--top-p=0.9", "--min-p=0.01", "--repetition-penalty=1.1"]
    texts = [
        trtc("run", smollm2_int4, "-p", "The", "--max-tokens=10", *options, "--seed", seed).stdout for seed in (1, 2, 1)
    ]
    assert texts[0] == texts[2] != texts[1]


def test_a_stop_string_ends_the_text(smollm2_int4, expected):
    stop = expected["story"].text[10:16]
    done = trtc("run", smollm2_int4, "-p", "Once upon a time", "--stop", stop)
    assert done.stdout == expected["story"].text[: expected["story"].text.index(stop)] + "\n"


def test_a_prompt_that_does_not_fit_is_one_sentence(smollm2_int4):
    done = trtc("run", smollm2_int4, stdin="word " * 4000)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_ctrl_c_is_quiet(smollm2_int4):
    process = start_trtc("run", smollm2_int4, "-p", "Count:", "--ignore-eos", "--max-tokens", 2000)
    process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "")


def test_a_conversation_at_a_terminal_remembers_what_was_said(smollm2_int4, expected):
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "trtc", "run", smollm2_int4, "--chat", "--max-tokens", "64"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, close_fds=True)
    os.close(terminal)

    def read_until(text):
        seen = b""
        while text.encode() not in seen:
            seen += os.read(controller, 4096)
        return seen.decode().replace("\r\n", "\n")

    read_until(">>> ")
    os.write(controller, f"{QUESTION}\n".encode())
    assert expected["answer"].text in read_until(">>> ")
    os.write(controller, b"And of Italy?\n")
    assert expected["second answer"].text in read_until(">>> ")
    os.write(controller, b"/help\n")
    read_until(">>> ")
    os.write(controller, b"/exit\n")
    stderr = process.stderr.read().decode()
    assert stderr.count("/new starts over") == 2 and stderr.count("prompt tokens") == 2
    assert process.wait(timeout=60) == 0
    os.close(controller)
