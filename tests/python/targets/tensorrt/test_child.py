"""The building process: its errors are the caller's, and however it dies the caller hears of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from trtc.errors import BuildError, CheckpointError
from trtc.targets.tensorrt import child
from trtc.targets.tensorrt.flavour import FLAVOURS

FLAVOUR = FLAVOURS["tensorrt"]  # needs no library links, and no test here loads it


def run_instead(monkeypatch, code):
    """Let the child be a Python program of ours: its arguments are the folder and the pipe."""
    popen = subprocess.Popen

    def start(command, **options):
        return popen([sys.executable, "-c", code, *command[3:]], **options)

    monkeypatch.setattr(child.subprocess, "Popen", start)


def send(message):
    return f"import os, sys, json; os.write(int(sys.argv[2]), (json.dumps({message!r}) + chr(10)).encode())"


def test_reported_error_keeps_its_class_and_sentence(monkeypatch, tmp_path):
    run_instead(monkeypatch, send({"error": {"type": "CheckpointError", "message": "tensor x is bad"}}))
    with pytest.raises(CheckpointError, match=r"^tensor x is bad$"):
        child.build_in_child(tmp_path, FLAVOUR)


def test_full_disk_is_an_os_error(monkeypatch, tmp_path):
    run_instead(monkeypatch, send({"error": {"type": "OSError", "errno": 28, "message": "No space left on device"}}))
    with pytest.raises(OSError, match="No space left"):
        child.build_in_child(tmp_path, FLAVOUR)


def test_progress_and_facts_come_over_the_pipe(monkeypatch, tmp_path):
    facts = {"flavour": "tensorrt", "version": "1", "plan_hash": "ab", "layers": 2, "bindings": [], "profiles": []}
    messages = [{"progress": [1, 4]}, {"facts": facts, "peak_rss_bytes": 77}]
    run_instead(monkeypatch, "\n".join(map(send, messages)))
    seen = []
    built = child.build_in_child(tmp_path, FLAVOUR, lambda *event: seen.append(event), "build plan")
    assert seen == [("build plan", 1, 4)]
    assert (built.facts.layers, built.peak_rss_bytes) == (2, 77)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('terminate called'); import os; os.abort()", r"was killed by SIGABRT; it said last: terminate called"),
        ("import os; os.kill(os.getpid(), 9)", r"was killed by SIGKILL \(out of memory\?\)"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import no_such_module", "ended with exit code 1; it said last: .*No module named 'no_such_module'"),
    ],
)
def test_death_without_a_word_is_a_build_error_with_the_last_words(monkeypatch, tmp_path, code, sentence):
    run_instead(monkeypatch, code)
    with pytest.raises(BuildError, match=f"^the process that builds with TensorRT {sentence}"):
        child.build_in_child(tmp_path, FLAVOUR)


def test_interrupted_caller_leaves_no_process(monkeypatch, tmp_path):
    run_instead(monkeypatch, f"{send({'progress': [0, 1]})}\nimport time; time.sleep(600)")
    started = []
    popen = child.subprocess.Popen
    monkeypatch.setattr(child.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0])

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.build_in_child(tmp_path, FLAVOUR, interrupt)
    assert started[0].returncode == -signal.SIGKILL


def test_process_ends_when_its_parent_is_gone():
    """A parent killed outright closes the pipe that the child watches."""
    read_end, write_end = os.pipe()
    code = "import time; from trtc.targets.tensorrt import child; child._die_with_parent(); time.sleep(600)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", code], stdin=read_end, env=environment)
    os.close(read_end)
    time.sleep(0.1)
    os.close(write_end)
    assert process.wait(timeout=60) == 1
