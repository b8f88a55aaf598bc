"""scripts/gpu_check as far as a machine without a GPU can run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "scripts" / "gpu_check"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)


def test_the_dry_run_checks_numbers_splits_and_batches(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    done = run("--dry-run", "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads((tmp_path / "report.json").read_text())["checks"]
    assert len(checks) == 6 and all(check["ok"] for check in checks)


def test_a_machine_without_a_gpu_is_told_so() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    done = run()
    assert done.returncode == 1 and "torch sees no GPU" in done.stderr
