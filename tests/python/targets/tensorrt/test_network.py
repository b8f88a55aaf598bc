"""What a TensorRT network computes, in numpy, is what the graph computes: for every recipe, in float and quantized."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import model_recipes
from tests.tiny_models import CONFIGS
from trtc.build import resolve_limits
from trtc.checkpoint.hf_config import model_config_from_hf
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.weight_map import WeightMap
from trtc.config import BuildConfig
from trtc.graph.reference import evaluate
from trtc.passes.pipeline import run_pipeline
from trtc.targets.tensorrt.flavour import FLAVOURS
from trtc.targets.tensorrt.job import WEIGHTS, Job, save_job
from trtc.targets.tensorrt.profiles import Limits
from trtc.targets.tensorrt.weight_file import write_weights

FLAVOUR = FLAVOURS["tensorrt-rtx"]
BLOCK_SIZE, BLOCKS, LAYERS = 16, 12, 2
LIMITS = Limits(max_batch_size=4, max_num_tokens=64, max_seq_len=128, max_logit_rows=16, tokens_per_block=BLOCK_SIZE)


def lowered(checkpoint, **settings):
    """A graph after the last phase, and its settings."""
    opened = open_checkpoint(checkpoint)
    model_config = model_config_from_hf(opened.config)
    config = BuildConfig(target="tensorrt-rtx", sm=89, tokens_per_block=BLOCK_SIZE, **settings)
    config = resolve_limits(config, model_config)
    weights = WeightMap(opened.tensors, model_config.model_type)
    graph = model_recipes.build_graph(model_config, weights, BLOCK_SIZE, config.max_seq_len)
    run_pipeline(graph, config)
    return graph, config


def step_inputs(graph, rng):
    """Two sequences: a prompt of 9 tokens, and a decode row after 20 that are in the cache."""
    inputs = {
        "input_ids": rng.integers(0, 256, 10).astype(np.int32),
        "position_ids": np.array([*range(9), 20], np.int32),
        "query_start": np.array([0, 9, 10], np.int32),
        "context_lens": np.array([9, 21], np.int32),
        "block_table": np.array([[3, 0], [1, 7]], np.int32),
        "logit_rows": np.array([8, 9], np.int32),
    }
    for value in graph.graph.inputs:
        if value.name.startswith("kv_cache."):
            inputs[value.name] = rng.standard_normal((BLOCKS, *value.shape[1:]), np.float32)
    return inputs


def network_outputs(folder, graph, config, inputs):
    folder.mkdir()
    weights = write_weights(graph, config.dtype, folder / WEIGHTS)
    kernels = dict.fromkeys(range(LAYERS), b"kernels\0of\xffa bundle")
    job = Job(FLAVOUR.name, config.sm, config.dtype, LIMITS, folder / "plan", tuple(weights), kernels)
    save_job(job, graph, folder)
    np.savez(folder / "inputs.npz", **inputs)
    command = [sys.executable, "-m", "tests.tensorrt_values", folder, folder / "inputs.npz", folder / "outputs.npz"]
    environment = FLAVOUR.environment(folder / "lib")
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "outputs.npz") as arrays:
        return dict(arrays)


CASES = [
    *[(model_type, {"dtype": "float16"}) for model_type in CONFIGS],
    ("llama", {"dtype": "float16", "quant": {"quant_algo": "w8a16"}}),
    ("llama", {"dtype": "float16", "quant": {"quant_algo": "w4a16"}}),
    ("llama", {"dtype": "bfloat16", "quant": {"quant_algo": "w4a16", "group_size": 32}}),
]


@pytest.mark.usefixtures("rtx")
@pytest.mark.parametrize(("model_type", "settings"), CASES)
def test_network_computes_what_the_graph_computes(checkpoints, tmp_path, model_type, settings):
    graph, config = lowered(checkpoints(model_type), **settings)
    inputs = step_inputs(graph, np.random.default_rng(1))
    want = evaluate(graph, inputs)
    got = network_outputs(tmp_path / "job", graph, config, inputs)
    assert set(got) == set(want)
    # float16 holds the weights and scales exactly; bfloat16 rounds by 2^-9, eight times on the way through two layers
    tolerance = 2e-5 if config.dtype == "float16" else 2.0**-6
    for name, value in want.items():
        assert got[name].shape == value.shape
        assert np.abs(got[name] - value).max() <= tolerance * np.abs(value).max(), name
