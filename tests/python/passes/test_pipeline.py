"""The whole pipeline over every architecture: what it leaves of a graph, and that it computes the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from model_recipes import build_graph
from tests.parity.harness import ReferenceRunner, packed_steps
from tests.quantized_values import values_of
from tests.tiny_models import CONFIGS, save_tiny_model
from trtc.checkpoint.hf_config import model_config_from_hf
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.weight_map import WeightMap
from trtc.config import BuildConfig, QuantConfig
from trtc.errors import GraphError
from trtc.passes import pipeline
from trtc.passes.pipeline import PHASE_NAMES, run_pipeline
from trtc.quantize.groupwise import QUANTIZED_META

SEQUENCES = [list(range(11, 24)), list(range(90, 97)), [5, 250]]
LAYERS = 2


@pytest.fixture(scope="module")
def fresh_graph(tmp_path_factory):
    """Builds the recipe's graph of a tiny model; each model is made once."""
    directories = {}

    def build(model_type):
        if model_type not in directories:
            directories[model_type] = save_tiny_model(model_type, tmp_path_factory.mktemp(model_type))
        checkpoint = open_checkpoint(directories[model_type])
        config = model_config_from_hf(checkpoint.config)
        return build_graph(config, WeightMap(checkpoint.tensors, model_type), block_size=8)

    return build


def settings(algo="none", group_size=32):
    return BuildConfig(quant=QuantConfig(quant_algo=algo, group_size=group_size))


def all_logits(model):
    runner = ReferenceRunner(model)
    return np.concatenate([runner(inputs) for inputs, _ in packed_steps(SEQUENCES, 4, decoded=1)])


def logits_per_phase(model, config):
    found = {}
    run_pipeline(model, config, lambda phase, model: found.update({phase: all_logits(model)}))
    return found


def count(model, op_type):
    return sum(node.op_type == op_type for node in model.graph)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_folding_and_fusing_keep_the_logits(fresh_graph, model_type):
    """Bound: 64 units in the last place of the largest logit; two layers of reordered float32 sums stay far below."""
    found = logits_per_phase(fresh_graph(model_type), settings())
    bound = 64 * np.finfo(np.float32).eps * np.abs(found["recipe"]).max()
    for phase in PHASE_NAMES[1:]:
        np.testing.assert_allclose(found[phase], found["recipe"], rtol=0, atol=bound, err_msg=phase)


@pytest.mark.parametrize("algo", ["w8a16", "w4a16"])
@pytest.mark.parametrize("model_type", CONFIGS)
def test_quantizing_changes_nothing_but_the_weights(fresh_graph, model_type, algo):
    """The float graph, given the rounded weights, computes the very same logits."""
    quantized, floating = fresh_graph(model_type), fresh_graph(model_type)
    found = logits_per_phase(quantized, settings(algo))
    run_pipeline(floating, settings())
    for name, value in quantized.graph.initializers.items():
        if name.endswith(".q"):
            rounded = values_of(value.meta[QUANTIZED_META].read(), 32)
            floating.graph.initializers[name.removesuffix(".q")].const_value = ir.Tensor(rounded)
    np.testing.assert_array_equal(all_logits(floating), found["quantize"])
    np.testing.assert_array_equal(found["clean"], found["quantize"])


@pytest.mark.parametrize("algo", ["w8a8", "w4a8"])
@pytest.mark.parametrize("model_type", CONFIGS)
def test_int8_activations_reach_every_linear_layer(fresh_graph, model_type, algo):
    model = fresh_graph(model_type)
    run_pipeline(model, settings(algo))
    for node in model.graph:
        if node.op_type == "Gemm":
            assert node.inputs[0].producer().inputs[0].producer().op_type == "QuantizeActivation", node.name
    assert np.isfinite(all_logits(model)).all()


@pytest.mark.parametrize(
    ("model_type", "gemms", "gated", "add_norms"),
    [  # per layer: qkv, output, gate/up, down; the last sum meets Gather before its norm
        ("llama", 4, 1, 2 * LAYERS - 1),
        ("mistral", 4, 1, 2 * LAYERS - 1),
        ("qwen2", 4, 1, 2 * LAYERS - 1),
        ("qwen3", 4, 1, 2 * LAYERS - 1),
        ("gemma3_text", 4, 1, 2 * LAYERS - 1),
        ("phi3", 4, 1, 2 * LAYERS - 1),
        ("gpt2", 4, 0, 2 * LAYERS),  # its first norm follows the sum of token and position embeddings
    ],
)
def test_every_layer_is_fused(fresh_graph, model_type, gemms, gated, add_norms):
    model = fresh_graph(model_type)
    reports = run_pipeline(model, settings())
    assert count(model, "Gemm") == LAYERS * gemms + 1
    assert count(model, "GatedActivation") == LAYERS * gated
    assert count(model, "AddRMSNormalization") + count(model, "AddLayerNormalization") == add_norms
    assert not [refusal for report in reports for refusal in report.refusals]


def test_gemma_scales_are_folded(fresh_graph):
    model = fresh_graph("gemma3_text")
    assert count(model, "Add") > 2 * LAYERS
    run_pipeline(model, settings())
    assert count(model, "Add") == 1  # the last residual
    assert "norm.scale.folded" in model.graph.initializers


def test_names_say_the_layer(fresh_graph):
    model = fresh_graph("llama")
    run_pipeline(model, settings("w4a8"))
    names = {node.name for node in model.graph}
    assert {"layers.1.self_attn.qkv_proj", "layers.1.self_attn.qkv_proj.split"} <= names
    assert {"layers.1.mlp.gate_up_proj", "layers.1.mlp.gated_activation"} <= names
    assert "layers.1.self_attn.qkv_proj.weight.q" in model.graph.initializers


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_group_size_is_that_of_the_settings(fresh_graph, group_size):
    model = fresh_graph("qwen3")
    run_pipeline(model, settings("w4a8", group_size))
    sizes = {n.attributes["block_size"].value for n in model.graph if "block_size" in n.attributes}
    assert sizes == {group_size}


def test_phases_come_in_order_and_an_unquantized_build_keeps_their_names(fresh_graph):
    seen = []
    run_pipeline(fresh_graph("llama"), settings(), lambda phase, model: seen.append(phase))
    assert tuple(seen) == PHASE_NAMES


def test_a_pass_that_breaks_the_graph_is_caught_under_its_phase(fresh_graph, monkeypatch):
    def sabotage(model):
        next(node for node in model.graph if node.op_type == "PagedAttention").attributes.pop("layer")
        return pipeline.PassReport("sabotage", 1)

    phases = [pipeline.Phase("recipe", ()), pipeline.Phase("fuse", (sabotage,))]
    monkeypatch.setattr(pipeline, "phases", lambda config: phases)
    with pytest.raises(GraphError, match="after phase 'fuse'"):
        run_pipeline(fresh_graph("llama"), settings())
