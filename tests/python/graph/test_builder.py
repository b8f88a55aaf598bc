from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.python.graph.graphs import BLOCK_SIZE, CONFIG, toy_graph
from trtc.errors import GraphError
from trtc.graph.builder import WEIGHT_META, GraphBuilder
from trtc.graph.shapes import value_type


class CountingWeight:
    """A lazy weight that counts how often it is read."""

    name, shape, dtype = "w", (3, 8), "float32"
    reads = 0

    def read(self) -> np.ndarray:
        self.reads += 1
        return np.full(self.shape, 2.0, np.float32)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        return self.read()[start:stop]


@pytest.fixture
def g() -> GraphBuilder:
    return GraphBuilder(CONFIG, BLOCK_SIZE)


def test_every_value_has_a_type_with_contract_dimensions() -> None:
    types = {value.name: str(value_type(value)) for node in toy_graph().graph for value in node.outputs}
    assert types["embed"] == "float[tokens, 8]"
    assert types["layers.0.attention.0"] == "float[tokens, 8]"
    assert types["kv_cache.0.out"] == "float[blocks, 2, 1, 4, 4]"
    assert types["wanted_rows"] == "float[logit_rows, 8]"
    assert types["logits"] == "float[logit_rows, 11]"


def test_nodes_carry_the_names_of_their_scopes_and_repeated_names_stay_unique(g: GraphBuilder) -> None:
    table = g.constant(np.ones((11, 8), np.float32), "table")
    with g.scope("layers.3"), g.scope("mlp"):
        first = g.op("Gather", table, g.input_ids, axis=0, name="up")
        second = g.op("Gather", table, g.input_ids, axis=0, name="up")
    assert (first.name, second.name) == ("layers.3.mlp.up", "layers.3.mlp.up_2")


def test_a_weight_is_read_only_when_its_value_is_asked_for_and_is_not_kept(g: GraphBuilder) -> None:
    weight = CountingWeight()
    value = g.weight(weight)
    assert weight.reads == 0 and value.meta[WEIGHT_META] is weight
    for _ in range(2):
        np.testing.assert_array_equal(value.const_value.numpy(), 2.0)
    assert weight.reads == 2
    assert g.weight(weight) is value


def test_equal_constants_of_one_name_are_shared_and_different_ones_refused(g: GraphBuilder) -> None:
    assert g.ints(0, 2) is g.ints(0, 2)
    assert g.scalar(0.5) is g.scalar(0.5)
    with pytest.raises(GraphError, match=r"'ints\.0_2' would reuse the name"):
        g.constant(np.array([1, 2], np.int64), "ints.0_2")


def test_a_wrong_shape_is_refused_naming_the_node(g: GraphBuilder) -> None:
    x = g.op("Gather", g.constant(np.ones((11, 8), np.float32), "table"), g.input_ids, axis=0)
    weight = g.constant(np.ones((4, 9), np.float32), "w")
    with g.scope("layers.0"), pytest.raises(GraphError, match=r"'layers\.0\.q' \(Gemm\): x has 8 columns .* has 9"):
        g.op("Gemm", x, weight, transB=1, name="q")


def test_an_unknown_operator_is_refused(g: GraphBuilder) -> None:
    with pytest.raises(GraphError, match=r"operator onnx\.Softmax is not one"):
        g.op("Softmax", g.input_ids, axis=-1)


def test_op_refuses_an_operator_with_several_outputs(g: GraphBuilder) -> None:
    x = g.op("Gather", g.constant(np.ones((11, 8), np.float32), "table"), g.input_ids, axis=0)
    with pytest.raises(GraphError, match=r"Split has 2 outputs: use emit\(\)"):
        g.op("Split", x, g.ints(4, 4), axis=1)


def test_finish_wants_one_kv_output_per_layer(g: GraphBuilder) -> None:
    with pytest.raises(GraphError, match="got 0 KV outputs, expected one per layer: 1"):
        g.finish(g.input_ids, [])


def test_initializers_are_float32_whatever_the_checkpoint_stores(g: GraphBuilder) -> None:
    assert g.weight(CountingWeight()).dtype == ir.DataType.FLOAT
