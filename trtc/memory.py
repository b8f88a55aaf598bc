"""How much memory this process has used."""

from __future__ import annotations

import resource
import sys


def peak_rss_bytes() -> int:
    """The most it ever had in memory, mapped files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
