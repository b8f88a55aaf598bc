import json
import signal
import time

import onnx
import pytest

from tests.python.cli.running import start_trtc, trtc
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model("llama", tmp_path_factory.mktemp("model"))


def test_build_prints_what_it_made_and_how_to_try_it(model, tmp_path):
    done = trtc("build", model, "-o", tmp_path / "my engine", "--quant", "w4a16", "--max-seq-len", 64)
    assert done.returncode == 0, done.stderr
    assert "pack weights" in done.stderr and "KV cache" in done.stdout
    assert f"trtc run '{tmp_path}/my engine' --chat" in done.stdout


def test_json_is_the_report_alone(model, tmp_path):
    done = trtc("build", model, "-o", tmp_path / "engine", "--json")
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert report["path"] == str(tmp_path / "engine") and report["weight_bytes"] > 0
    assert set(report["seconds"]) >= {"pack weights", "run passes"}


def test_quiet_prints_nothing(model, tmp_path):
    done = trtc("build", model, "-o", tmp_path / "engine", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_options_reach_the_engine(model, tmp_path):
    options = "--dtype float32 --kv-cache-dtype bfloat16 --quant w8a8 --group-size 64 --max-batch-size 3"
    limits = "--max-num-tokens 40 --max-seq-len 100 --tokens-per-block 16"
    trtc("build", model, "-o", tmp_path / "engine", *options.split(), *limits.split(), "--quiet")
    config = json.loads(trtc("inspect", tmp_path / "engine", "--json").stdout)["build_config"]
    assert config == {
        "target": "cpu",
        "sm": None,
        "dtype": "float32",
        "kv_cache_dtype": "bfloat16",
        "quant": {"quant_algo": "w8a8", "group_size": 64, "has_zero_point": True, "quantize_vocabulary": True},
        "mapping": {"tp_size": 1},
        "max_batch_size": 3,
        "max_num_tokens": 40,
        "max_seq_len": 100,
        "tokens_per_block": 16,
    }


def test_graphs_are_saved_beside_the_engine_or_where_told(model, tmp_path):
    engine, elsewhere = tmp_path / "engine", tmp_path / "graphs"
    dumps = ["--dump-graph", "recipe", "--dump-graph", "fuse"]
    assert trtc("build", model, "-o", engine, *dumps, "--quiet").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine", "engine.fuse.onnx", "engine.recipe.onnx"]
    assert trtc("build", model, "-o", engine, *dumps, "--dump-dir", elsewhere, "--quiet").returncode == 0
    graph = onnx.load(elsewhere / "engine.fuse.onnx").graph
    assert "PagedAttention" in {node.op_type for node in graph.node}


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_is_quiet_and_leaves_nothing(smollm2, tmp_path, sent, code):
    process = start_trtc("build", smollm2, "-o", tmp_path / "engine", "--dtype", "float32")
    while not any(tmp_path.iterdir()) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert stdout == "" and "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []
