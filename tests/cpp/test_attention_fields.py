"""plugins/attention_fields.cc: the fields of trtc::PagedAttention, read as its build half writes them."""

from __future__ import annotations

import math

import pytest

from tests.cpp.kernel_bundles import plugin_fields
from trtc import _test_tensorrt
from trtc.errors import EngineError


def read(fields):
    return _test_tensorrt.read_fields(list(fields.items()))


def test_fields_come_back_as_written_whatever_their_order():
    fields = plugin_fields(softcap=2.5, window=7, cache_dtype=1)
    assert read(fields) == fields
    assert read(dict(reversed(fields.items()))) == fields
    assert _test_tensorrt.field_names() == list(fields)


@pytest.mark.parametrize("name", plugin_fields())
def test_a_missing_field_is_named(name):
    fields = {key: value for key, value in plugin_fields().items() if key != name}
    with pytest.raises(EngineError, match=f"trtc::PagedAttention lacks the field {name}; build the engine again"):
        read(fields)


def test_an_unknown_field_is_named():
    with pytest.raises(EngineError, match="has the field sinks, which this version does not know"):
        read(plugin_fields(sinks=1))


def test_a_field_given_twice_is_named():
    with pytest.raises(EngineError, match="has the field layer twice"):
        _test_tensorrt.read_fields([*plugin_fields().items(), ("layer", 1)])


@pytest.mark.parametrize(
    ("name", "value", "type_name"),
    [("layer", 1.0, "int32"), ("scale", 1, "float32"), ("kernels", 3, "bytes"), ("sm", b"89", "int32")],
)
def test_a_field_of_another_type_is_named(name, value, type_name):
    with pytest.raises(EngineError, match=f"has the field {name} of another type than {type_name}"):
        read(plugin_fields(**{name: value}))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"layer": -1}, "has layer -1, expected 0 to"),
        ({"num_heads": 0}, "has num_heads 0, expected 1 to"),
        ({"num_heads": 2**33}, "has num_heads 8589934592, expected 1 to"),
        ({"num_kv_heads": 9}, "has num_kv_heads 9, expected 1 to 8"),
        ({"num_kv_heads": 3}, "has 8 query heads for 3 KV heads, expected a multiple"),
        ({"rotary_dim": 66}, "has rotary_dim 66, expected 0 to 64"),
        ({"rotary_dim": 7}, "has an odd rotary_dim 7"),
        ({"compute_dtype": 2}, "has compute_dtype 2, expected 0 to 1"),
        ({"cache_dtype": -1}, "has cache_dtype -1, expected 0 to 1"),
        ({"block_size": 0}, "has block_size 0, expected 1 to"),
        ({"workspace_rows": -5}, "has workspace_rows -5, expected 0 to"),
        ({"scale": math.nan}, "has scale nan, expected a finite number of 0 or more"),
        ({"softcap": -1.0}, "has softcap -1.000000, expected a finite number of 0 or more"),
    ],
)
def test_a_field_out_of_range_is_named(changed, problem):
    with pytest.raises(EngineError, match=problem):
        read(plugin_fields(**changed))
