from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from tests.python.graph.graphs import node, toy_graph
from trtc.errors import GraphError
from trtc.graph.builder import make_node
from trtc.graph.verify import verify


def _two_definitions(model: ir.Model) -> None:
    node(model, "layers.0.k").outputs[0].name = "embed"


def _use_before_definition(model: ir.Model) -> None:
    graph = model.graph
    late = node(model, "lm_head")
    early = node(model, "layers.0.k")
    graph.remove(late)
    graph.insert_before(early, late)


def _wrong_shape(model: ir.Model) -> None:
    node(model, "embed").outputs[0].shape = ir.Shape(["tokens", 9])


def _no_dtype(model: ir.Model) -> None:
    node(model, "embed").outputs[0].type = None


def _unknown_operator(model: ir.Model) -> None:
    node(model, "layers.0.residual").op_type = "Sub"


def _missing_attribute(model: ir.Model) -> None:
    del node(model, "layers.0.attention").attributes["softcap"]


def _layer_of_another_cache(model: ir.Model) -> None:
    node(model, "layers.0.attention").attributes["layer"] = ir.AttrInt64("layer", 1)


def _foreign_input(model: ir.Model) -> None:
    model.graph.inputs.append(ir.val("attention_mask", ir.DataType.INT32, ["tokens"]))


def _missing_input(model: ir.Model) -> None:
    model.graph.inputs.remove(next(value for value in model.graph.inputs if value.name == "position_ids"))


def _mistyped_input(model: ir.Model) -> None:
    model.graph.inputs[0].dtype = ir.DataType.INT64


def _foreign_output(model: ir.Model) -> None:
    model.graph.outputs.append(node(model, "embed").outputs[0])


def _cache_not_returned(model: ir.Model) -> None:
    model.graph.outputs.pop()


def _cache_read_twice(model: ir.Model) -> None:
    graph = model.graph
    first = node(model, "layers.0.attention")
    attributes = {name: attr.value for name, attr in first.attributes.items()}
    again = make_node("PagedAttention", list(first.inputs), attributes, domain="trtc", name="again")
    graph.insert_after(first, again)


def _initializer_of_another_shape(model: ir.Model) -> None:
    model.graph.initializers["table"].const_value = ir.tensor(np.ones((11, 7), np.float32))


def _wrong_opset(model: ir.Model) -> None:
    model.graph.opset_imports[""] = 18


def _two_nodes_of_one_name(model: ir.Model) -> None:
    node(model, "layers.0.k").name = "embed"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_two_definitions, r"node 'layers\.0\.k' \(Gemm\): value 'embed' is defined twice"),
        (_use_before_definition, r"node 'lm_head' \(Gemm\): input 'wanted_rows' is not defined before its use"),
        (_wrong_shape, r"node 'embed' \(Gather\): value 'embed' is float\[tokens, 9\], expected float\[tokens, 8\]"),
        (_no_dtype, r"node 'embed' .* value 'embed' has no dtype"),
        (_unknown_operator, r"node 'layers\.0\.residual' .*operator onnx\.Sub is not one"),
        (_missing_attribute, r"node 'layers\.0\.attention' .*missing attribute 'softcap'"),
        (_layer_of_another_cache, r"node 'layers\.0\.attention' says layer 1 but uses 'kv_cache\.0'"),
        (_foreign_input, "input 'attention_mask' is no binding"),
        (_missing_input, "input 'position_ids' is missing"),
        (_mistyped_input, r"'input_ids' is int64\[tokens\], expected int32\[tokens\]"),
        (_foreign_output, "outputs are .*'embed'.* expected"),
        (_cache_not_returned, r"outputs are \['logits'\], expected"),
        (_cache_read_twice, r"'kv_cache\.0' must feed exactly"),
        (_initializer_of_another_shape, r"'table' is float\[11, 8\], expected float\[11, 7\]"),
        (_wrong_opset, "opset imports are"),
        (_two_nodes_of_one_name, r"node name 'embed' \(Gemm\) is empty or used twice"),
    ],
)
def test_damage_is_found_and_names_phase_and_place(damage: Callable[[ir.Model], None], message: str) -> None:
    model = toy_graph()
    verify(model, "recipe")
    damage(model)
    with pytest.raises(GraphError, match=r"(?s)after phase 'fuse': .*" + message):
        verify(model, "fuse")
