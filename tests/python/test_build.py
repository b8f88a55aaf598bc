"""``build_engine`` from checkpoint to engine: every algorithm, every refusal, and builds that die half-way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.tiny_models import CONFIGS, save_tiny_model
from trtc.build import DEFAULT_MAX_SEQ_LEN, build_engine
from trtc.config import BuildConfig, Mapping, QuantConfig
from trtc.engine.reader import open_engine
from trtc.errors import BuildError, CheckpointError, ConfigError, RecipeError
from trtc.passes.pipeline import PHASE_NAMES

ROOT = Path(__file__).resolve().parents[2]
ALGOS = ["none", "w8a16", "w8a8", "w4a16", "w4a8"]
STAGES = ["read checkpoint", "build graph", "run passes", "pack weights", "write engine"]


def settings(algo="none", **fields):
    return BuildConfig(quant=QuantConfig(quant_algo=algo), **fields)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Directory of a tiny model; each is made once."""
    directories = {}

    def directory(model_type):
        if model_type not in directories:
            directories[model_type] = save_tiny_model(model_type, tmp_path_factory.mktemp(model_type))
        return directories[model_type]

    return directory


@pytest.fixture
def llama(checkpoints):
    return checkpoints("llama")


def one_step_logits(engine):
    """Logits of every row of one five-token prompt."""
    from trtc import _core

    model = _core.CpuModel(str(engine), 1)
    model.allocate_kv_cache(2)
    ids = np.array([256, 72, 101, 108, 111], np.int32)
    rows = np.arange(5, dtype=np.int32)
    return model.run(ids, rows, np.array([0, 5], np.int32), np.array([5], np.int32), np.array([[1]], np.int32), rows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("algo", ALGOS)
def test_every_algorithm_builds_an_engine_that_runs(llama, tmp_path, algo, dtype):
    report = build_engine(llama, tmp_path / "engine", settings(algo, dtype=dtype))
    engine = open_engine(report.path)
    engine.verify_weights()
    assert engine.manifest.build_config.quant.quant_algo.value == algo
    assert np.isfinite(one_step_logits(report.path)).all()


@pytest.mark.parametrize("model_type", CONFIGS)
def test_every_architecture_builds_in_four_bits(checkpoints, tmp_path, model_type):
    report = build_engine(checkpoints(model_type), tmp_path / "engine", settings("w4a8"))
    assert np.isfinite(one_step_logits(report.path)).all()


def test_report_says_what_the_directory_holds(llama, tmp_path):
    report = build_engine(llama, tmp_path / "engine", settings("w8a16"))
    assert list(report.seconds) == STAGES
    assert report.engine_bytes == sum(path.stat().st_size for path in (tmp_path / "engine").iterdir())
    assert 0 < report.weight_bytes < report.engine_bytes
    assert report.arena_bytes > 0
    assert report.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2  # layers, key and value, heads, head size, bfloat16
    assert report.peak_rss_bytes > 1 << 20
    assert sum(entry.rewrites for entry in report.passes if entry.name == "fuse_qkv") == 2


def test_engine_carries_tokenizer_and_chat_template(llama, tmp_path):
    build_engine(llama, tmp_path / "engine", settings())
    names = {path.name for path in (tmp_path / "engine").iterdir()}
    assert names >= {"engine.json", "rank0.engine", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def test_progress_tells_stages_in_order_and_ends_each(llama, tmp_path):
    events = []
    build_engine(llama, tmp_path / "engine", settings(), progress=lambda *event: events.append(event))
    assert list(dict.fromkeys(stage for stage, _, _ in events)) == STAGES
    last = {stage: (done, total) for stage, done, total in events}
    assert all(done == total for done, total in last.values())
    assert len([event for event in events if event[0] == "pack weights"]) > 8


def test_dumped_phases_open_in_onnx(llama, tmp_path):
    paths = {phase: tmp_path / "graphs" / f"{phase}.onnx" for phase in PHASE_NAMES}
    build_engine(llama, tmp_path / "engine", settings("w4a8"), dump_graph=paths)
    ops = {phase: [node.op_type for node in onnx.load(path).graph.node] for phase, path in paths.items()}
    assert "GatedActivation" not in ops["fold"]
    assert "GatedActivation" in ops["fuse"]
    assert "DequantizeLinear" not in ops["fuse"]
    assert "DequantizeLinear" in ops["clean"]


def test_default_sequence_length_is_the_models_own(llama, tmp_path):
    report = build_engine(llama, tmp_path / "engine", settings())
    assert open_engine(report.path).manifest.limits.max_seq_len == 128


def test_default_sequence_length_of_a_long_model_is_bounded(tmp_path):
    model = save_tiny_model("llama", tmp_path / "model", max_position_embeddings=100_000)
    report = build_engine(model, tmp_path / "engine", settings())
    assert open_engine(report.path).manifest.limits.max_seq_len == DEFAULT_MAX_SEQ_LEN


def test_sequence_length_beyond_the_models_positions_is_refused(llama, tmp_path):
    with pytest.raises(ConfigError, match="max_seq_len is 129, but the model has 128 positions; ask for at most 128"):
        build_engine(llama, tmp_path / "engine", settings(max_seq_len=129))


def test_several_ranks_are_refused_with_not_yet(llama, tmp_path):
    with pytest.raises(ConfigError, match="tp_size is 2, but trtc cannot split a model over several ranks yet"):
        build_engine(llama, tmp_path / "engine", settings(mapping=Mapping(tp_size=2)))


def test_unknown_dump_phase_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match="phases: recipe, fold, fuse, quantize, clean"):
        build_engine(tmp_path / "absent", tmp_path / "e", settings(), dump_graph={"lower": tmp_path / "x.onnx"})


def assert_nothing_left(parent):
    assert [path.name for path in parent.iterdir() if "engine" in path.name] == []


def test_unknown_architecture_is_one_clear_sentence(llama, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for path in llama.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "parrot", "architectures": ["Parrot"]}))
    with pytest.raises((ConfigError, RecipeError), match="parrot") as caught:
        build_engine(model, tmp_path / "engine", settings())
    assert "llama" in str(caught.value), "it names the known ones"
    assert "\n" not in str(caught.value)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("eos_token_id", value) for value in ("x", [1.5], {"a": 1}, True, 10**30, [["a"]])),
        *(("temperature", value) for value in ("hot", float("nan"), 10**400)),
        *(("top_k", 1.5), ("do_sample", "yes"), ("repetition_penalty", [1])),
    ],
)
def test_malformed_generation_config_is_an_error_naming_the_field(checkpoints, tmp_path, field, value):
    model = shutil.copytree(checkpoints("llama"), tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({field: value}))
    with pytest.raises(ConfigError, match=f"generation_config.json: field '{field}' is"):
        build_engine(model, tmp_path / "engine", BuildConfig())


def test_end_tokens_that_no_output_can_hold_are_left_out(checkpoints, tmp_path):
    model = shutil.copytree(checkpoints("llama"), tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [-1, 2, 70000]}))
    build_engine(model, tmp_path / "engine", BuildConfig())
    assert open_engine(tmp_path / "engine").manifest.generation.eos_token_ids == (257, 2)


def test_missing_model_is_one_clear_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="absent"):
        build_engine(tmp_path / "absent", tmp_path / "engine", settings())
    assert_nothing_left(tmp_path)


def test_existing_engine_is_replaced(llama, tmp_path):
    build_engine(llama, tmp_path / "engine", settings("w8a16"))
    build_engine(llama, tmp_path / "engine", settings("w4a16"))
    assert open_engine(tmp_path / "engine").manifest.build_config.quant.quant_algo.value == "w4a16"
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


@pytest.mark.parametrize("what", ["directory with files", "file"])
def test_output_that_is_no_engine_is_left_alone(llama, tmp_path, what):
    output = tmp_path / "precious"
    if what == "file":
        output.write_text("mine")
    else:
        output.mkdir()
        (output / "notes.txt").write_text("mine")
    with pytest.raises(BuildError, match="precious"):
        build_engine(llama, output, settings())
    assert (output if what == "file" else output / "notes.txt").read_text() == "mine"


def test_output_below_a_file_is_one_clear_error(llama, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BuildError, match="cannot write the engine"):
        build_engine(llama, tmp_path / "file" / "engine", settings())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_directory_is_one_clear_error(llama, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(BuildError, match=r"cannot write the engine .*Permission denied"):
        build_engine(llama, tmp_path / "locked" / "engine", settings())


def test_file_system_that_refuses_is_one_clear_error(llama):
    with pytest.raises(BuildError, match="cannot write the engine /proc/"):
        build_engine(llama, "/proc/trtc/engine", settings())


CHILD = """
import os, resource, signal, sys
from trtc.build import build_engine
from trtc.config import BuildConfig, QuantConfig
from trtc.engine import writer
from trtc.errors import TrtcError

model, output, moment, limit = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if hasattr(writer, moment):
    setattr(writer, moment, die)
watch = lambda stage, done, total: die() if f"{stage} {done}" == moment else None
try:
    build_engine(model, output, BuildConfig(quant=QuantConfig(quant_algo="w8a8")), progress=watch)
except TrtcError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def build_in_child(model, output, moment="never", size_limit=0):
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(model), str(output), moment, str(size_limit)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        timeout=300,
        check=False,
    )


# A stage's beginning or the end of a part of it, or the writer's function that never got to run.
STARTS = [f"{stage} 0" for stage in STAGES[1:]]
MOMENTS = [*STARTS, "pack weights 3", "_sync", "_put_in_place"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_build_leaves_no_engine_and_the_next_one_cleans_up(llama, tmp_path, moment):
    killed = build_in_child(llama, tmp_path / "engine", moment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "engine").exists()
    build_engine(llama, tmp_path / "engine", settings())
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]
    open_engine(tmp_path / "engine").verify_weights()


@pytest.mark.parametrize("moment", ["pack weights 3", "_put_in_place"])
def test_killed_rebuild_leaves_the_old_engine_whole(llama, tmp_path, moment):
    build_engine(llama, tmp_path / "engine", settings("w4a16"))
    assert build_in_child(llama, tmp_path / "engine", moment).returncode == -signal.SIGKILL
    engine = open_engine(tmp_path / "engine")
    engine.verify_weights()
    assert engine.manifest.build_config.quant.quant_algo.value == "w4a16"


def test_file_that_may_not_grow_is_one_clear_error_and_leaves_nothing(llama, tmp_path):
    failed = build_in_child(llama, tmp_path / "engine", size_limit=40_000)
    assert failed.returncode == 1
    assert failed.stderr.startswith("BuildError: cannot write the engine"), failed.stderr
    assert "File too large" in failed.stderr
    assert_nothing_left(tmp_path)


def test_full_disk_is_one_clear_error_and_leaves_nothing(llama, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root of a machine that allows it can mount a small disk")
    try:
        with pytest.raises(BuildError, match="No space left on device; nothing was left behind"):
            build_engine(llama, disk / "engine", settings())
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_memory_does_not_grow_with_the_number_of_layers(tmp_path):
    """Weights pass through one at a time: ten more layers may not cost even one layer's float32 weights."""
    width, inner = 256, 1024
    shape = {"hidden_size": width, "intermediate_size": inner, "num_attention_heads": 4, "num_key_value_heads": 4}
    peaks = []
    for layers in (2, 12):
        model = save_tiny_model("llama", tmp_path / f"model{layers}", num_hidden_layers=layers, **shape)
        tracemalloc.start()
        build_engine(model, tmp_path / f"engine{layers}", settings("w8a8"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 4 * (4 * width * width + 3 * width * inner)
