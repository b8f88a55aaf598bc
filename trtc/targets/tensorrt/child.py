"""The building process: started with TensorRT's libraries on its path, it reports over a pipe and dies with its parent.

A process of its own is needed because the dynamic linker reads LD_LIBRARY_PATH at the start alone; it also keeps
TensorRT's memory and its crashes out of the caller.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trtc import errors
from trtc.engine.tensorrt_facts import PlanFacts
from trtc.errors import BuildError, TrtcError
from trtc.memory import peak_rss_bytes
from trtc.targets.base import Progress
from trtc.targets.tensorrt.flavour import Flavour

_LOG_LINES = 3  # of what a process that died had printed last


class BuiltPlan(NamedTuple):
    """What the plan is, and the most memory that the process had."""

    facts: PlanFacts
    peak_rss_bytes: int


def build_in_child(folder: Path, flavour: Flavour, progress: Progress | None = None, stage: str = "") -> BuiltPlan:
    """Build the job in ``folder`` and return what the plan is. ``progress(stage, done, total)`` follows the builder.

    Raises the error that the process reports, or BuildError when it dies without one.
    """
    environment = flavour.environment(folder / "lib")
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", __name__, str(folder), str(write_end)]
    with (folder / "output.txt").open("wb") as output, os.fdopen(read_end, "rb") as messages:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, pass_fds=(write_end,)
        )
        try:
            os.close(write_end)
            built = _follow(messages, progress, stage)
        finally:
            process.kill()
            code = process.wait()
            assert process.stdin is not None
            process.stdin.close()
    if built is None:
        raise BuildError(_obituary(flavour, code, folder / "output.txt"))
    return built


def _follow(messages: BinaryIO, progress: Progress | None, stage: str) -> BuiltPlan | None:
    """Read messages until the one that ends the build. None: the process ended without one."""
    for line in messages:
        message = json.loads(line)
        if "facts" in message:
            return BuiltPlan(PlanFacts.model_validate(message["facts"]), message["peak_rss_bytes"])
        if "error" in message:
            raise _as_error(message["error"])
        if progress is not None:
            progress(stage, *message["progress"])
    return None


def _as_error(values: dict[str, Any]) -> Exception:
    if values["type"] == "OSError":
        return OSError(values["errno"], values["message"])
    kind = getattr(errors, values["type"], BuildError)
    assert issubclass(kind, TrtcError)
    return kind(values["message"])


def _obituary(flavour: Flavour, code: int, output: Path) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += " (out of memory?)"
    lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    last = " / ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])
    return f"the process that builds with {flavour.title} {how}" + (f"; it said last: {last}" if last else "")


class _Reporter:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def send(self, **message: Any) -> None:
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def progress(self, _: str, done: int, total: int) -> None:
        self.send(progress=[done, total])


def _die_with_parent() -> None:
    """The parent holds the other end of standard input and closes it by dying, however it dies."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(folder: Path, descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    _die_with_parent()
    reporter = _Reporter(descriptor)
    from trtc.targets.tensorrt.build_plan import build_plan
    from trtc.targets.tensorrt.job import load_job

    try:
        job, model = load_job(folder)
        facts = build_plan(job, model, folder, reporter.progress)
    except TrtcError as error:
        reporter.send(error={"type": type(error).__name__, "message": str(error)})
    except OSError as error:
        values = {"type": "OSError", "errno": error.errno, "message": error.strerror or str(error)}
        reporter.send(error=values)
    else:
        reporter.send(facts=facts.model_dump(mode="json"), peak_rss_bytes=peak_rss_bytes())
    os._exit(0)  # nothing of this process is wanted any more; TensorRT's own end takes a while


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
