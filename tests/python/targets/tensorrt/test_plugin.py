"""The plugin's build half, as TensorRT uses it: fields in, fields out, copies, shapes and types."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.kernels.shape import AttentionShape
from trtc.targets.tensorrt.flavour import FLAVOURS
from trtc.targets.tensorrt.plugin import FIELDS, NAME, NAMESPACE, VERSION, PluginFields, make_creator

SHAPE = AttentionShape(
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    block_size=32,
    scale=0.125,
    rotary_dim=48,
    window=7,
    softcap=30.0,
    compute_dtype="bfloat16",
)
PLUGIN = PluginFields(layer=3, shape=SHAPE, sm=89, workspace_rows=40, kernels=b"TRTCKRN1\0\1\xff" * 9)


def test_fields_survive_their_values():
    assert PluginFields.from_values(PLUGIN.values()) == PLUGIN
    assert tuple(PLUGIN.values()) == FIELDS


@pytest.mark.parametrize("field", FIELDS)
def test_missing_field_is_named(field):
    values = {name: value for name, value in PLUGIN.values().items() if name != field}
    with pytest.raises(ValueError, match=f"trtc::PagedAttention lacks the field {field}"):
        PluginFields.from_values(values)


def test_dtype_of_another_version_is_refused():
    with pytest.raises(ValueError, match="has compute_dtype 7, expected 0 to 1"):
        PluginFields.from_values({**PLUGIN.values(), "compute_dtype": 7})


def test_workspace_holds_the_parts_of_split_rows_and_the_rotated_query():
    rows = 40 * 8
    assert PLUGIN.workspace_bytes(max_tokens=100) == rows * 64 * 4 + rows * 2 * 4 + 100 * 8 * 64 * 2


@pytest.fixture(scope="module")
def trt(rtx):
    return FLAVOURS["tensorrt-rtx"].load()


@pytest.fixture
def plugin(trt):
    return make_creator(trt).make(PLUGIN)


@pytest.mark.usefixtures("rtx")
class TestLifeCycle:
    def test_creator_is_known_by_name_and_version_and_makes_plugins_of_stored_fields(self, trt, plugin):
        creator = make_creator(trt)
        assert (creator.name, creator.plugin_version, creator.plugin_namespace) == (NAME, VERSION, NAMESPACE)
        assert [field.name for field in creator.field_names] == list(FIELDS)
        made = creator.create_plugin("layer", plugin.get_fields_to_serialize(), trt.TensorRTPhase.RUNTIME)
        assert made.fields == PLUGIN

    def test_copy_has_the_same_fields(self, plugin):
        copy = plugin.clone()
        assert copy is not plugin and copy.fields == PLUGIN

    def test_serialized_fields_are_the_contracts(self, trt, plugin):
        stored = {field.name: field for field in plugin.get_fields_to_serialize()}
        assert list(stored) == list(FIELDS)
        kinds = trt.PluginFieldType
        assert stored["kernels"].type == kinds.CHAR and stored["kernels"].size == len(PLUGIN.kernels)
        assert stored["scale"].type == stored["softcap"].type == kinds.FLOAT32
        rest = set(FIELDS) - {"kernels", "scale", "softcap"}
        assert {stored[name].type for name in rest} == {kinds.INT32}
        assert np.asarray(stored["window"].data)[0] == 7

    def test_outputs_are_the_query_and_the_cache_in_place(self, plugin):
        kinds, shapes = [f"t{i}" for i in range(10)], [f"s{i}" for i in range(10)]
        assert plugin.num_outputs == 2
        assert plugin.get_output_data_types(kinds) == ["t0", "t3"]
        assert plugin.get_output_shapes(shapes, [], None) == ["s0", "s3"]
        assert [plugin.get_aliased_input(output) for output in (0, 1)] == [-1, 3]

    def test_every_tensor_has_one_type_and_layout(self, trt, plugin):
        bfloat16, int32, float32 = trt.bfloat16, trt.int32, trt.float32
        want = [bfloat16] * 4 + [int32] * 4 + [float32] * 2 + [bfloat16] * 2
        tensors = [trt.DynamicPluginTensorDesc() for _ in want]
        for tensor, kind in zip(tensors, want, strict=True):
            description = trt.PluginTensorDesc()
            description.type, description.format = kind, trt.TensorFormat.LINEAR
            tensor.desc = description
        assert all(plugin.supports_format_combination(i, tensors, 10) for i in range(12))
        description = trt.PluginTensorDesc()
        description.type, description.format = trt.float16, trt.TensorFormat.LINEAR
        tensors[1].desc = description
        assert not plugin.supports_format_combination(1, tensors, 10)
