"""The thread team: every member runs, barriers hold, failures stop everybody and leave the team usable."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trtc import _test_kernels
from trtc.errors import ExecutorError

ThreadTeam = _test_kernels.ThreadTeam


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_every_member_runs_once_per_run(threads: int) -> None:
    team = ThreadTeam(threads)
    for _ in range(20):
        seen: list[tuple[int, int]] = []
        team.run(lambda thread, count, seen=seen: seen.append((thread, count)))
        assert sorted(seen) == [(thread, threads) for thread in range(threads)]


def test_zero_means_the_cores_this_process_may_use() -> None:
    assert ThreadTeam(0).size == len(os.sched_getaffinity(0))
    only = min(os.sched_getaffinity(0))
    script = f"import os; os.sched_setaffinity(0, [{only}]); {LOAD_MODULE}; print(k.ThreadTeam(0).size)"
    assert run_python(script) == "1"


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ExecutorError, match="number of threads is -1"):
        ThreadTeam(-1)


@pytest.mark.parametrize(("threads", "runs"), [(1, 2000), (2, 5000), (3, 1000), (8, 300)])
def test_barriers_hold_over_thousands_of_runs(threads: int, runs: int) -> None:
    assert ThreadTeam(threads).stress(runs, 3) == 0


def test_teams_come_and_go() -> None:
    for _ in range(200):
        ThreadTeam(4)
    for _ in range(100):
        team = ThreadTeam(3)
        assert team.stress(1, 1) == 0


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_a_failing_member_breaks_the_barrier_and_the_team_lives_on(threads: int) -> None:
    team = ThreadTeam(threads)
    for failing in range(threads):
        for at in (0, 2, 4):
            passed = team.fail(failing, at, 5)
            assert passed[failing] == at
            assert all(count in (at - 1, at) for count in passed)  # nobody got past the barrier that was never reached
            assert team.stress(3, 2) == 0


def test_run_rethrows_what_a_member_threw() -> None:
    team = ThreadTeam(3)

    def body(thread: int, count: int) -> None:
        if thread == 1:
            raise KeyError("from member 1")
        team.barrier()

    for _ in range(20):
        with pytest.raises(KeyError, match="from member 1"):
            team.run(body)
    assert team.stress(10, 2) == 0


def test_every_member_may_fail_at_once() -> None:
    team = ThreadTeam(4)

    def body(thread: int, count: int) -> None:
        raise ValueError("all")

    for _ in range(50):
        with pytest.raises(ValueError, match="all"):
            team.run(body)


def test_callers_on_several_threads_take_turns() -> None:
    team = ThreadTeam(2)
    violations: list[int] = []
    callers = [threading.Thread(target=lambda: violations.append(team.stress(200, 2))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert violations == [0, 0, 0, 0]


# Subprocesses load the module under test from its file, wherever it was built.
LOAD_MODULE = (
    "import importlib.util; "
    f"spec = importlib.util.spec_from_file_location('_test_kernels', {_test_kernels.__file__!r}); "
    "k = importlib.util.module_from_spec(spec); spec.loader.exec_module(k)"
)


def run_python(script: str) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_forked_child_is_told_instead_of_hanging() -> None:
    script = f"""
import os
{LOAD_MODULE}
team = k.ThreadTeam(3)
assert team.stress(2, 2) == 0
child = os.fork()
if child == 0:
    try:
        team.run(lambda thread, count: None)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    del team
    print("own team:", k.ThreadTeam(2).stress(5, 2), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent:", team.stress(2, 2))
"""
    lines = run_python(script).splitlines()
    assert lines[0].startswith("ExecutorError the thread team was made before this process forked")
    assert lines[1:] == ["own team: 0", "parent: 0"]
