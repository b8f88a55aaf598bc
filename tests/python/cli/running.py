"""Runs ``trtc`` as a user does: in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

WIDE = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def trtc(*arguments: object, stdin: str = "", columns: int = 200) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trtc", *map(str, arguments)]
    environment = {**WIDE, "COLUMNS": str(columns)}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment)


def start_trtc(*arguments: object) -> subprocess.Popen[str]:
    """In the background, taking SIGINT even where this process was started without it, as background jobs are."""
    return subprocess.Popen(
        [sys.executable, "-m", "trtc", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=WIDE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
