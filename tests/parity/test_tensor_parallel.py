"""Every recipe divided among ranks, all of them run by the numpy evaluator, against the whole transformers model."""

from __future__ import annotations

import math
from pathlib import Path

import onnx_ir as ir
import pytest

from tests.parity.cases import CASES, ParityCase
from tests.parity.harness import ReferenceRunner, assert_parity, build_case_graph
from trtc.config import BuildConfig
from trtc.errors import ConfigError, GraphError
from trtc.graph.shard import Shard
from trtc.passes.pipeline import run_pipeline

# Two ranks divide the 2 key and value heads of the tiny models, four share them. 261 tokens divide by neither.
WORLDS = (2, 4)


def rank_graphs(case: ParityCase, directory: Path, world: int) -> list[ir.Model]:
    return [build_case_graph(case, directory, shard=Shard(rank, world)) for rank in range(world)]


def parameters(model: ir.Model) -> int:
    """Elements of the matrices."""
    shapes = [tuple(value.shape.numpy()) for value in model.graph.initializers.values()]
    return sum(math.prod(shape) for shape in shapes if len(shape) == 2)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ranks_together_give_the_logits_of_transformers(case: ParityCase, world: int, tmp_path: Path) -> None:
    ranks = rank_graphs(case, tmp_path, world)
    assert_parity(case, lambda: ReferenceRunner(*ranks), chunks=(7,))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["llama-biases", "gemma3", "phi3", "gpt2"])
def test_passes_keep_what_ranks_compute(name: str, world: int, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    ranks = rank_graphs(case, tmp_path, world)
    for model in ranks:
        run_pipeline(model, BuildConfig(dtype="float32"))
    assert_parity(case, lambda: ReferenceRunner(*ranks), chunks=(7,))


@pytest.mark.parametrize("algo", ["w8a16", "w4a8"])
def test_every_linear_layer_of_a_rank_is_quantized(algo: str, tmp_path: Path) -> None:
    model = rank_graphs(CASES[0], tmp_path, 2)[1]
    run_pipeline(model, BuildConfig(quant={"quant_algo": algo}))  # the pass itself checks that none is left
    tables = [node for node in model.graph if node.op_type == "GatherShard"]
    assert [node.inputs[0].producer().inputs[0].dtype for node in tables] == [ir.DataType.INT8]


def test_a_rank_holds_its_share_alone(tmp_path: Path) -> None:
    case = CASES[0]
    whole = build_case_graph(case, tmp_path)
    shares = [parameters(model) for model in rank_graphs(case, tmp_path, 2)]
    rope_tables = 2 * case.max_seq_len * 8
    assert shares[0] == shares[1]
    padding = 2 * 64  # the row that makes 261 tokens even, of the embedding and of the logits
    assert 2 * (shares[0] - rope_tables) == parameters(whole) - rope_tables + padding


def test_ranks_that_cannot_share_evenly_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tp_size 3 does not divide the model's 2 key and value heads"):
        rank_graphs(CASES[0], tmp_path, 3)


def test_one_rank_alone_cannot_be_evaluated(tmp_path: Path) -> None:
    ranks = rank_graphs(CASES[0], tmp_path, 2)
    with pytest.raises(GraphError, match="one rank's share, it needs the others for AllReduce"):
        assert_parity(CASES[0], lambda: ReferenceRunner(ranks[0]))
