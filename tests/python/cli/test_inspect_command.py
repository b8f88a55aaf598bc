import json
import os
import signal
import subprocess
import sys

import pytest

from tests.python.cli.running import trtc
from tests.tiny_models import save_tiny_model
from trtc.build import build_engine
from trtc.config import BuildConfig


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    directory = tmp_path_factory.mktemp("inspect")
    model = save_tiny_model("gemma3_text", directory / "model")
    build_engine(model, directory / "engine", BuildConfig(quant={"quant_algo": "w4a8"}, max_seq_len=64))
    return directory / "engine"


def test_the_tables_answer_what_people_ask(engine):
    done = trtc("inspect", engine)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for words in (
        "gemma3_text",
        "window 8 tokens",
        "int4 (groups of 32)",
        "bytes per token, bfloat16",
        "64 tokens, prompt and output",
        "portable or better",
        "runs it with",
        "fingerprint",
        "rank0.engine",
        "tokenizer.json",
    ):
        assert words in shown, words


def test_json_is_the_manifest(engine):
    values = json.loads(trtc("inspect", engine, "--json").stdout)
    assert values["model"]["model_type"] == "gemma3_text"
    assert values["limits"]["max_seq_len"] == 64 and values["weights_verified"] is False
    assert "kernel_calls" not in values


def test_the_graph_lists_every_kernel_call(engine):
    (calls,) = json.loads(trtc("inspect", engine, "--json", "--graph").stdout)["kernel_calls"]
    assert [call["op"] for call in calls].count("attention") == 2
    (window,) = {call["parameters"]["window"] for call in calls if call["op"] == "attention"} - {0}
    assert window == 8
    listing = trtc("inspect", engine, "--graph").stdout.partition("Kernel calls of a step\n")[2]
    assert "paged" not in listing
    for line, call in zip(listing.splitlines()[1:], calls, strict=True):
        for slot, operand in call["operands"].items():
            assert f"{slot}={operand}" in line, line


def test_piped_tables_are_not_folded(engine):
    values = json.loads(trtc("inspect", engine, "--json").stdout)
    lines = trtc("inspect", engine, columns=40).stdout.splitlines()
    for file in values["files"]:
        assert any(file["name"] in line and file["sha256"] in line for line in lines)


def test_verify_finds_a_flipped_bit(engine, tmp_path):
    done = trtc("inspect", engine, "--verify")
    assert done.returncode == 0 and "weights verified" in done.stdout
    path = engine / "rank0.engine"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    try:
        broken = trtc("inspect", engine, "--verify")
    finally:
        data[-100] ^= 1
        path.write_bytes(data)
    assert broken.returncode == 1 and "is damaged" in broken.stderr


@pytest.mark.parametrize("options", [[], ["--graph"], ["--json"]])
def test_a_reader_that_stops_early_is_no_error(engine, options):
    """It ends as any program whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trtc", "inspect", str(engine), *options]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
