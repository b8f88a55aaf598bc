"""Real TensorRT-RTX engines, built without a GPU: every recipe, dtype, SM and quantization, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from tests.python.cli.running import trtc
from tests.python.targets.tensorrt.models import save_wide_model
from tests.tiny_models import CONFIGS, save_tiny_model
from trtc import _core
from trtc.build import build_engine
from trtc.config import BuildConfig
from trtc.engine.reader import open_engine
from trtc.errors import BuildError, ConfigError, EngineError
from trtc.targets.tensorrt import kernel_bundle
from trtc.targets.tensorrt.capabilities import CAPABILITIES
from trtc.targets.tensorrt.kernel_bundle import KernelBundle, KernelImage

pytestmark = pytest.mark.usefixtures("rtx")

HAS_RUNTIME = "tensorrt-rtx" in _core.tensorrt_runtimes()
SMS = tuple(CAPABILITIES["tensorrt-rtx"])


def settings(sm=89, dtype="float16", algo="none", **fields):
    quant = {"quant_algo": algo, **({"group_size": 32} if algo == "w4a16" else {})}
    return BuildConfig(target="tensorrt-rtx", sm=sm, dtype=dtype, quant=quant, **fields)


@pytest.fixture
def quick_kernels(monkeypatch):
    """Bundles that take no time to compile, for tests of all but the kernels."""
    image = KernelImage("paged_attention", "entry", 4, 0, 32, 0, {"SPLIT": 512}, b"\x7fELF\0 no code")
    monkeypatch.setattr(kernel_bundle, "compile_bundle", lambda shape, sm: KernelBundle((image,)))


@pytest.fixture(scope="module")
def engine(checkpoints, tmp_path_factory):
    """An engine that tests may read but not change."""
    output = tmp_path_factory.mktemp("tensorrt") / "engine"
    limits = {"max_batch_size": 4, "max_num_tokens": 48, "max_seq_len": 96, "tokens_per_block": 16}
    build_engine(checkpoints("gemma3_text"), output, settings(120, **limits))
    return output


CASES = [
    *[(model_type, SMS[i % 4], ("float16", "bfloat16")[i % 2], "none") for i, model_type in enumerate(CONFIGS)],
    ("llama", 80, "bfloat16", "w8a16"),
    ("llama", 120, "bfloat16", "w4a16"),
    ("llama", 89, "float16", "w4a16"),
]


@pytest.mark.usefixtures("quick_kernels")
@pytest.mark.parametrize(("model_type", "sm", "dtype", "algo"), CASES)
def test_every_recipe_builds(checkpoints, tmp_path, model_type, sm, dtype, algo):
    report = build_engine(checkpoints(model_type), tmp_path / "engine", settings(sm, dtype, algo))
    manifest = open_engine(report.path).manifest
    facts = manifest.tensorrt
    assert (facts.sm, facts.flavour, facts.plugin_layers) == (sm, "tensorrt-rtx", 2)
    assert manifest.precision["mlp"] == {"none": dtype, "w8a16": "int8", "w4a16": "int4"}[algo]
    assert manifest.precision["embedding and logits"] == dtype
    assert b"PagedAttention" in (report.path / "rank0.engine").read_bytes()


def test_plan_carries_the_kernels_of_every_layer(engine):
    kernels = open_engine(engine).manifest.tensorrt.kernels
    assert [kernel.layers for kernel in kernels] == [(0,)] * 3 + [(1,)] * 3, "one window, one without"
    assert [kernel.role for kernel in kernels[:3]] == ["rotary_kv_write", "paged_attention", "combine_splits"]
    assert all(kernel.cubin_bytes > 1000 and kernel.registers > 0 for kernel in kernels)
    copies = (engine / "rank0.engine").read_bytes().count(kernel_bundle.MAGIC)
    assert copies == 2 * 2, "of each layer, for each profile"


def test_manifest_says_what_the_plan_takes(engine):
    manifest = open_engine(engine).manifest
    facts = manifest.tensorrt
    dtypes = {binding.name: (binding.kind, binding.dtype, binding.shape) for binding in facts.bindings}
    assert dtypes["kv_cache.1"] == ("input", "float16", (-1, 2, 2, 16, 64))
    assert dtypes["kv_cache.1.out"] == ("output", "float16", (-1, 2, 2, 16, 64))
    assert dtypes["block_table"] == ("input", "int32", (-1, -1))
    assert dtypes["logits"] == ("output", "float32", (-1, 261))
    decode, mixed = facts.profiles
    assert (decode.name, mixed.name) == ("decode", "mixed")
    assert decode.shapes["input_ids"] == ((1,), (4,), (4,))
    assert mixed.shapes["input_ids"] == ((1,), (48,), (48,))
    assert mixed.shapes["query_start"] == ((2,), (5,), (5,))
    assert mixed.shapes["block_table"] == ((1, 1), (4, 6), (4, 6))
    assert manifest.required_isa == "sm_120"
    assert manifest.memory.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2  # layers, key and value, heads, channels, bytes


@pytest.mark.usefixtures("quick_kernels")
def test_progress_follows_weights_and_builder(checkpoints, tmp_path):
    events = []
    report = build_engine(
        checkpoints("llama"), tmp_path / "engine", settings(), progress=lambda *event: events.append(event)
    )
    stages = ["read checkpoint", "build graph", "run passes", "build plan", "write engine"]
    assert list(report.seconds) == stages
    assert set(stages) | {"pack weights"} == {stage for stage, _, _ in events}
    assert len([event for event in events if event[0] == "build plan"]) > 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine"]
    assert not [path for path in report.path.iterdir() if path.name.startswith(".")], "scratch files are gone"


def test_inspect_shows_plan_plugin_profiles_and_bindings(engine):
    done = trtc("inspect", engine)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for words in (
        "target tensorrt-rtx",
        "a GPU of compute capability 12.0 and tensorrt-rtx",
        "runs it where such a GPU is" if HAS_RUNTIME else "cannot run it: this build of trtc has no TensorRT backend",
        "trtc::PagedAttention version 1, 2 layers",
        "paged_attention layer 1: 4 warps,",
        "decode: 1 to 4 tokens of 1 to 4 sequences",
        "mixed: 1 to 48 tokens",
        "kv_cache.0 input float16 [any, 2, 2, 16, 64]",
        "logits output float32 [any, 261]",
        "TensorRT decides when it loads the plan",
    ):
        assert words in shown, words
    assert json.loads(trtc("inspect", engine, "--json").stdout)["tensorrt"]["sm"] == 120
    refused = trtc("inspect", engine, "--graph")
    assert refused.returncode == 1 and "those of this engine are TensorRT's to choose" in refused.stderr


@pytest.mark.skipif(HAS_RUNTIME, reason="this build has the runtime of tensorrt-rtx")
def test_running_it_is_refused_in_a_sentence(engine):
    from trtc import LLM

    with pytest.raises(EngineError, match=r"is a tensorrt-rtx engine for sm 120, and this build .* target cpu"):
        LLM(engine)
    done = trtc("run", engine, "--prompt", "hi")
    assert done.returncode == 1 and "has no TensorRT backend to run it" in done.stderr


@pytest.mark.skipif(HAS_RUNTIME, reason="this build has the runtime of tensorrt-rtx")
def test_llm_does_not_build_what_it_cannot_run(checkpoints):
    from trtc import LLM

    with pytest.raises(ConfigError, match=r"build_config.target is tensorrt-rtx, and this build .* use target cpu"):
        LLM(checkpoints("llama"), build_config=settings())


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_damaged_plan_is_refused(engine, tmp_path, damage):
    copy = shutil.copytree(engine, tmp_path / "copy")
    plan = copy / "rank0.engine"
    data = bytearray(plan.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    plan.write_bytes(data if damage == "flip" else data[:-9])
    done = trtc("inspect", copy, "--verify")
    assert done.returncode == 1
    assert ("is damaged" if damage == "flip" else "it was changed") in done.stderr


@pytest.mark.parametrize(
    ("overrides", "algo", "sentence"),
    [
        ({}, "none", r"PagedAttention 'layers.0.self_attn.attention': no attention kernel for head size 16"),
        (
            {"head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 1},
            "none",
            "no attention kernel for 16 query heads over 1 KV heads",
        ),
        ({"head_dim": 64, "intermediate_size": 80}, "w4a16", r"80 input channels are no multiple of .* use w8a16"),
    ],
)
def test_model_beyond_the_kernels_is_refused_by_layer(tmp_path, overrides, algo, sentence):
    model = save_tiny_model("llama", tmp_path / "model", **overrides)
    with pytest.raises(BuildError, match=sentence):
        build_engine(model, tmp_path / "engine", settings(algo=algo))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_weight_beyond_float16_is_refused(tmp_path):
    from safetensors.numpy import load_file, save_file

    model = save_wide_model("llama", tmp_path / "model")
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][0, 0] = np.float32(1e5)
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(BuildError, match=r"layers.1.mlp.down_proj.weight holds 100000, beyond float16's 65504"):
        build_engine(model, tmp_path / "engine", settings())


@pytest.mark.parametrize(("sm", "dtype", "algo"), [(89, "float16", "none"), (80, "bfloat16", "w4a16")])
def test_a_real_model_builds(smollm2, tmp_path, sm, dtype, algo):
    report = build_engine(smollm2, tmp_path / "engine", settings(sm, dtype, algo, max_seq_len=2048))
    assert report.engine_bytes < 1.6 * report.weight_bytes, "weights are stored in their own type"
    assert report.peak_rss_bytes < 2 << 30
