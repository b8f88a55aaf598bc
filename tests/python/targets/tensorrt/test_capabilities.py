"""Settings that a TensorRT target cannot have are refused at once, with what would work."""

from __future__ import annotations

import pytest

from trtc.build import build_engine
from trtc.config import BuildConfig, QuantConfig
from trtc.errors import BuildError, ConfigError
from trtc.targets.base import get_target
from trtc.targets.cpu.target import CpuTarget
from trtc.targets.tensorrt import flavour
from trtc.targets.tensorrt.capabilities import CAPABILITIES, check_settings


def settings(target="tensorrt-rtx", sm=89, dtype="float16", **fields):
    return BuildConfig(target=target, sm=sm, dtype=dtype, **fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sm": None}, "target tensorrt-rtx needs sm, the GPU's architecture; choose 80, 86, 89 or 120"),
        (
            {"sm": 90},
            "tensorrt-rtx cannot build for sm 90; it builds for 80, 86, 89 or 120, and target tensorrt for sm 90",
        ),
        ({"sm": 61}, "target tensorrt-rtx cannot build for sm 61; it builds for 80, 86, 89 or 120$"),
        ({"dtype": "float32"}, "on sm 89 has no dtype float32; choose float16 or bfloat16"),
        ({"kv_cache_dtype": "bfloat16"}, "kv_cache_dtype is bfloat16, dtype float16; use kv_cache_dtype auto"),
        ({"quant": {"quant_algo": "w8a8"}}, "has no quantization w8a8; choose none, w8a16 or w4a16"),
        ({"quant": {"quant_algo": "w8a16", "group_size": 64}}, "int8 weights by output channel .* leave out the group"),
        ({"quant": {"quant_algo": "w4a16", "group_size": 0}}, "int4 weights in groups of 32, 64 or 128"),
        ({"quant": {"quant_algo": "w4a16", "has_zero_point": True}}, "has_zero_point must be False or left out"),
        ({"quant": {"quant_algo": "w4a16", "quantize_vocabulary": True}}, "quantize_vocabulary must be False"),
    ],
)
def test_setting_beyond_the_table_is_refused_by_name(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_settings(settings(**fields))


def test_refusal_comes_before_the_model_is_opened(tmp_path):
    with pytest.raises(ConfigError, match="cannot build for sm 90"):
        build_engine(tmp_path / "absent", tmp_path / "engine", settings(sm=90))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("quant", ["none", "w8a16", "w4a16"])
@pytest.mark.parametrize(("target", "sm"), [(target, sm) for target, sms in CAPABILITIES.items() for sm in sms])
def test_what_the_table_holds_is_accepted(target, sm, quant):
    for dtype in ("float16", "bfloat16"):
        check_settings(settings(target, sm, dtype, quant={"quant_algo": quant}))


def test_quantization_is_filled_in_for_the_target():
    quants = {algo: settings(quant={"quant_algo": algo}).quant for algo in ("w8a16", "w4a16")}
    assert (quants["w8a16"].group_size, quants["w4a16"].group_size) == (0, 64)
    assert not any(quant.has_zero_point or quant.quantize_vocabulary for quant in quants.values())
    assert settings(quant=QuantConfig(quant_algo="w4a16", group_size=128)).quant.group_size == 128
    assert BuildConfig(quant={"quant_algo": "w4a16"}).quant == QuantConfig(quant_algo="w4a16"), "as ever on the CPU"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sm": 89}, "sm is 89, a GPU architecture"),
        ({"dtype": "float16"}, "no dtype float16; choose float32 or bfloat16"),
        ({"kv_cache_dtype": "float16"}, "no kv_cache_dtype float16"),
        ({"quant": {"quant_algo": "w4a16", "has_zero_point": False}}, "no quantization with has_zero_point False"),
        ({"quant": {"quant_algo": "w8a16", "group_size": 0}}, "no quantization with group_size 0"),
        ({"quant": {"quant_algo": "w8a8", "quantize_vocabulary": False}}, "with quantize_vocabulary False"),
    ],
)
def test_cpu_target_refuses_what_is_tensorrts(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        CpuTarget().check(BuildConfig(**fields))


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            "tensorrt-rtx",
            r"needs the Python package tensorrt_rtx, which is not installed: pip install 'trtc\[tensorrt-rtx\]'",
        ),
        ("tensorrt", "needs the Python package tensorrt, which is not installed: .* or use target tensorrt-rtx"),
    ],
)
def test_missing_package_is_one_sentence_with_the_remedy(monkeypatch, target, sentence):
    monkeypatch.setattr(flavour.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match=sentence) as caught:
        get_target(target).check(settings(target))
    assert "\n" not in str(caught.value)
