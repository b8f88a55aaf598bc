from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.targets.graphs import build_toy_engine, step_graph
from trtc.engine.reader import open_engine
from trtc.engine.writer import write_engine
from trtc.errors import BuildError

ROOT = Path(__file__).resolve().parents[3]


def identity(g, x):
    return x


def doubled(g, x):
    return g.op("Add", x, x, name="double")


def left_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_engine_appears_whole_and_alone(tmp_path):
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    assert left_in(tmp_path) == ["engine"]
    assert left_in(tmp_path / "engine") == ["engine.json", "rank0.engine", "tokenizer.json"]
    open_engine(tmp_path / "engine").verify_weights()


def test_missing_parent_directories_are_made(tmp_path):
    open_engine(build_toy_engine(step_graph(identity), tmp_path / "a" / "b" / "engine"))


def test_existing_engine_is_replaced(tmp_path):
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    before = open_engine(tmp_path / "engine").plans[0].engine_hash
    build_toy_engine(step_graph(doubled), tmp_path / "engine")
    assert open_engine(tmp_path / "engine").plans[0].engine_hash != before
    assert left_in(tmp_path) == ["engine"]


def test_replacement_works_where_directories_cannot_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr("trtc.engine.writer._exchange", lambda a, b: False)
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    build_toy_engine(step_graph(doubled), tmp_path / "engine")
    open_engine(tmp_path / "engine")
    assert left_in(tmp_path) == ["engine"]


def test_failed_build_leaves_nothing_and_the_old_engine_intact(tmp_path):
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    with pytest.raises(KeyboardInterrupt), write_engine(tmp_path / "engine") as draft:
        draft.rank_path().write_bytes(b"half")
        raise KeyboardInterrupt
    assert left_in(tmp_path) == ["engine"]
    open_engine(tmp_path / "engine").verify_weights()


def test_directory_that_is_no_engine_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BuildError, match="is not an engine"), write_engine(tmp_path):
        pass
    assert left_in(tmp_path) == ["thesis.tex"]


def test_a_file_that_no_build_wrote_is_not_lost_with_the_engine_it_lies_in(tmp_path):
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    (tmp_path / "engine" / "notes.txt").write_text("what this engine is for")
    with pytest.raises(BuildError, match=r"holds notes\.txt, .* would be lost"):
        build_toy_engine(step_graph(doubled), tmp_path / "engine")
    assert (tmp_path / "engine" / "notes.txt").read_text() == "what this engine is for"
    open_engine(tmp_path / "engine").verify_weights()


@pytest.mark.parametrize("exchangeable", [True, False])
@pytest.mark.parametrize("existing", ["engine", "empty directory", "nothing"])
def test_an_output_that_is_a_link_stays_one(tmp_path, monkeypatch, existing, exchangeable):
    if not exchangeable:
        monkeypatch.setattr("trtc.engine.writer._exchange", lambda a, b: False)
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "link").symlink_to(disk / "engine")
    if existing == "engine":
        build_toy_engine(step_graph(identity), disk / "engine")
    elif existing == "empty directory":
        (disk / "engine").mkdir()
    build_toy_engine(step_graph(doubled), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and left_in(tmp_path) == ["disk", "link"] and left_in(disk) == ["engine"]
    open_engine(tmp_path / "link").verify_weights()


def test_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "engine").write_text("a file")
    with pytest.raises(BuildError, match="is a file"), write_engine(tmp_path / "engine"):
        pass


def test_unwritable_place_is_one_sentence():
    with pytest.raises(BuildError, match="cannot write the engine /proc/engine"), write_engine("/proc/engine"):
        pass


def test_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BuildError, match="No space left on device"):
        build_toy_engine(step_graph(identity), tmp_path / "engine")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("where", ["os.open", "fcntl.flock", "pathlib.Path.chmod"])
def test_an_interrupt_while_the_draft_is_being_made_leaves_nothing(tmp_path, monkeypatch, where):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def interrupted(*_):  # once: removing the draft calls the same functions
            patch.undo()
            raise KeyboardInterrupt

        patch.setattr(where, interrupted)
        with write_engine(tmp_path / "engine"):
            pass
    assert left_in(tmp_path) == []


def test_draft_of_a_killed_build_is_cleared_by_the_next(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from trtc.engine.writer import write_engine\n"
        "with write_engine(sys.argv[1]) as draft:\n"
        "    draft.rank_path().write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "engine")], cwd=ROOT, check=False, timeout=60)
    assert not (tmp_path / "engine").exists() and len(left_in(tmp_path)) == 1
    build_toy_engine(step_graph(identity), tmp_path / "engine")
    assert left_in(tmp_path) == ["engine"]


def test_draft_of_a_running_build_is_left_alone(tmp_path):
    with write_engine(tmp_path / "engine") as other:
        build_toy_engine(step_graph(identity), tmp_path / "engine")
        assert other.directory.is_dir()
        from tests.python.targets.graphs import CONFIG, SETTINGS
        from trtc.targets.cpu.target import CpuTarget

        artifact = CpuTarget().lower(step_graph(identity), CONFIG, SETTINGS, other.rank_path())
        other.seal(artifact=artifact, model_config=CONFIG, build_config=SETTINGS, source="t", fingerprint="0")
    assert left_in(tmp_path) == ["engine"]
