"""The plugin's library inside a real TensorRT for RTX: found by its registry and built into a plan.

TensorRT is started in a child process, because a library's path is read when a process starts.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "trtc/libtrtc_plugins_rtx.so"
LIBRARIES = importlib.util.find_spec("tensorrt_rtx_libs")

pytestmark = [
    pytest.mark.skipif(not LIBRARY.exists(), reason="this build has no runtime of tensorrt_rtx"),
    pytest.mark.skipif(
        LIBRARIES is None or not importlib.util.find_spec("onnx"), reason="tensorrt_rtx is not installed"
    ),
]

CHILD = """
import sys
import tensorrt_rtx as trt
from onnx import TensorProto, helper
from tests.cpp.kernel_bundles import plugin_fields

class Log(trt.ILogger):
    def log(self, severity, message):
        if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
            print("log:", message)

log = Log()
builder = trt.Builder(log)
registry = trt.get_plugin_registry()
assert registry.load_library(sys.argv[1]) is not None
creator = registry.get_creator("PagedAttention", "1", "trtc")
print("fields:", *[field.name for field in creator.field_names])

fields = plugin_fields(**eval(sys.argv[2]))
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
wide, int32, real = TensorProto.BFLOAT16, TensorProto.INT32, TensorProto.FLOAT
inputs = [("query", wide, ["t", 512]), ("key", wide, ["t", 128]), ("value", wide, ["t", 128])]
inputs += [("kv", wide, ["b", 2, 2, 16, 64]), ("positions", int32, ["t"]), ("starts", int32, ["s1"])]
inputs += [("contexts", int32, ["s"]), ("table", int32, ["s", "m"]), ("cos", real, [9, 16]), ("sin", real, [9, 16])]
inputs = [helper.make_tensor_value_info(*one) for one in inputs]
outputs = [("out", wide, ["t", 512]), ("kv_out", wide, ["b", 2, 2, 16, 64])]
outputs = [helper.make_tensor_value_info(*one) for one in outputs]
node = helper.make_node(
    "PagedAttention", [one.name for one in inputs], ["out", "kv_out"], domain="trtc", plugin_version="1",
    plugin_namespace="trtc", **fields,
)
graph = helper.make_graph([node], "graph", inputs, outputs)
opsets = [helper.make_opsetid("", 24), helper.make_opsetid("trtc", 1)]
model = helper.make_model(graph, opset_imports=opsets)
if not trt.OnnxParser(network, log).parse(model.SerializeToString()):
    sys.exit("not parsed")
layer = network.get_layer(0)
print("outputs:", *[layer.get_output(i).shape for i in range(2)])

config = builder.create_builder_config()
config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
config.num_compute_capabilities = 1
config.set_compute_capability(trt.ComputeCapability.SM89, 0)
profile = builder.create_optimization_profile()
for name, shape in {"query": (512,), "key": (128,), "value": (128,), "positions": ()}.items():
    profile.set_shape(name, (1, *shape), (16, *shape), (64, *shape))
profile.set_shape("kv", *[(blocks, 2, 2, 16, 64) for blocks in (1, 8, 1024)])
profile.set_shape("starts", (2,), (5,), (9,))
profile.set_shape("contexts", (1,), (4,), (8,))
profile.set_shape("table", (1, 1), (4, 4), (8, 8))
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
print("plan with kernels:", plan is not None and fields["kernels"] in bytes(plan))
"""


def build(tmp_path, changed):
    folder = Path(next(iter(LIBRARIES.submodule_search_locations)))
    (tmp_path / "libtensorrt_rtx.so").symlink_to(folder / "libtensorrt_rtx.so.1")
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}:{folder}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, str(LIBRARY), repr(changed)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_tensorrt_builds_a_plan_with_the_plugin_and_stores_its_fields(tmp_path):
    result = build(tmp_path, {})
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines() == [
        "fields: layer num_heads num_kv_heads head_dim rotary_dim window block_size compute_dtype cache_dtype sm "
        "workspace_rows scale softcap kernels",
        "outputs: (-1, 512) (-1, 2, 2, 16, 64)",
        "plan with kernels: True",
    ]


def test_a_field_that_is_wrong_is_named_in_tensorrts_log(tmp_path):
    result = build(tmp_path, {"layer": -1})
    assert "not parsed" in result.stderr
    assert "log: trtc::PagedAttention has layer -1, expected 0 to 2147483647; build the engine again" in result.stdout
