"""Runs ``trtc`` as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

WIDE = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def trtc(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trtc", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, env=WIDE)
