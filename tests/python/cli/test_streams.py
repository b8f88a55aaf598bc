"""Standard streams that are closed, full, abandoned or of a narrow encoding."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.cli.running import WIDE
from tests.tiny_models import save_tiny_model
from trtc.build import build_engine
from trtc.config import BuildConfig

PIPE_CODE = 128 + signal.SIGPIPE


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    directory = tmp_path_factory.mktemp("streams")
    build_engine(save_tiny_model("llama", directory / "tiny-llama"), directory / "modèle", BuildConfig())
    return directory / "modèle"


def shell(line, engine, **environment):
    """``line`` in bash, with $TRTC and $ENGINE. Buffered, as Python is outside tests."""
    names = {"TRTC": f"{sys.executable} -m trtc", "ENGINE": str(engine), "PYTHONUNBUFFERED": "", **environment}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={**WIDE, **names})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("what", ["inspect $ENGINE", "inspect $ENGINE --json", "run $ENGINE -p hi --json"])
def test_output_that_cannot_be_written_is_one_sentence(engine, what):
    done = shell(f"$TRTC {what} > /dev/full", engine)
    assert done.returncode == 1 and "cannot be read or written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr


@pytest.mark.parametrize("what", ["inspect $ENGINE --graph", "inspect $ENGINE --graph --json"])
def test_a_reader_that_has_gone_gives_the_code_of_a_broken_pipe(engine, what):
    done = shell(f"$TRTC {what} | true; exit ${{PIPESTATUS[0]}}", engine)
    assert (done.returncode, done.stderr) == (PIPE_CODE, "")


def test_closed_streams_count_as_empty(engine):
    done = shell("$TRTC run $ENGINE <&-", engine)
    assert done.returncode == 2 and "standard input is empty" in done.stderr
    assert shell("$TRTC run $ENGINE --prompt hi --max-tokens 2 >&-", engine).returncode == 0
    assert shell("$TRTC inspect $ENGINE 2>&-", engine).returncode == 0


def test_characters_that_the_encoding_lacks_are_replaced(engine):
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    failed = shell("$TRTC inspect $ENGINE/none", engine, **ascii_only)
    assert failed.returncode == 1 and "mod?le/none does not exist" in failed.stderr
    told = json.loads(shell("$TRTC inspect $ENGINE/none --json", engine, **ascii_only).stdout)
    assert "modèle/none does not exist" in told["error"]["message"]
    done = shell("$TRTC run $ENGINE --prompt hi --max-tokens 64 --ignore-eos", engine, **ascii_only)
    assert done.returncode == 0 and "?" in done.stdout


def test_ctrl_c_is_quiet_while_modules_are_being_imported():
    program = (
        "import builtins, sys, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "load = builtins.__import__\n"
        "def interrupting(name, *rest):\n"
        "    if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupting\n"
        "sys.argv = ['trtc', '--help']\n"
        "from trtc.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
