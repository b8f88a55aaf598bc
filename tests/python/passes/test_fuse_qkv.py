import numpy as np
import pytest

from trtc.passes.fuse_qkv import FuseQkvPass


def attention_over(sketch, *, bias=False, v_source=None, per_head=False):
    x = sketch.input("x", 12)
    q = sketch.linear(x, 16, "layers.0.attn.q_proj", bias)
    k = sketch.linear(x, 8, "layers.0.attn.k_proj", bias)
    v = sketch.linear(v_source or x, 8, "layers.0.attn.v_proj", bias)
    if per_head:
        heads = sketch.constant("heads", np.array([0, 4, 4]))
        flat = sketch.constant("flat", np.array([0, 16]))
        positions = sketch.ids("position_ids", 9)
        q = sketch.op("Reshape", q, heads, name="q_heads")
        q = sketch.op("RMSNormalization", q, sketch.weight("q_norm.weight", 4), name="q_norm", epsilon=1e-6)
        q = sketch.op("Reshape", q, flat, name="q_flat")
        cos, sin = sketch.weight("cos", 9, 2), sketch.weight("sin", 9, 2)
        q = sketch.op("RotaryEmbedding", q, cos, sin, positions, name="q_rope", num_heads=4, rotary_dim=4)
        k = sketch.op("RotaryEmbedding", k, cos, sin, positions, name="k_rope", num_heads=2, rotary_dim=4)
    return sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
def test_three_projections_become_one_gemm_and_a_split(sketch, same_after, bias, per_head):
    attention_over(sketch, bias=bias, per_head=per_head)
    report = same_after(sketch, FuseQkvPass())
    assert report.rewrites == 1
    assert sketch.op_types().count("Gemm") == 1
    assert sketch.op_types()[:2] == ["Gemm", "Split"]
    gemm = sketch.graph[0]
    assert gemm.name == "layers.0.attn.qkv_proj"
    assert gemm.inputs[1].shape == [32, 12]
    assert len(gemm.inputs) == (3 if bias else 2)


def test_joined_weight_is_query_then_key_then_value_and_stays_lazy(sketch):
    attention_over(sketch)
    parts = [sketch.graph.initializers[f"layers.0.attn.{p}_proj.weight"].const_value.numpy() for p in "qkv"]
    FuseQkvPass()(sketch.model)
    joined = sketch.graph[0].inputs[1]
    assert np.array_equal(joined.const_value.numpy(), np.concatenate(parts))
    assert type(joined.const_value).__name__ == "LazyTensor"
    assert not joined.const_value.cache
    assert np.array_equal(joined.meta["trtc.weight"].read_rows(15, 26), np.concatenate(parts)[15:26])
    assert not any("k_proj" in name for name in sketch.graph.initializers)


def test_second_run_finds_nothing(sketch):
    attention_over(sketch)
    FuseQkvPass()(sketch.model)
    report = FuseQkvPass()(sketch.model)
    assert (report.rewrites, report.refusals) == (0, ())


def test_projection_of_another_input_is_refused(sketch, same_after):
    attention_over(sketch, v_source=sketch.input("other", 12))
    report = same_after(sketch, FuseQkvPass())
    assert report.rewrites == 0
    assert report.refusals[0].reason == "layers.0.attn.q_proj and layers.0.attn.v_proj have different inputs"


def test_bias_on_some_projections_only_is_refused(sketch, same_after):
    x = sketch.input("x", 12)
    q = sketch.linear(x, 16, "q", bias=True)
    k, v = sketch.linear(x, 8, "k"), sketch.linear(x, 8, "v")
    sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out)
    report = same_after(sketch, FuseQkvPass())
    assert report.refusals[0].reason == "only some of q, k, v have a bias"


def test_shared_weight_is_refused_because_joining_would_hold_it_twice(sketch, same_after):
    x = sketch.input("x", 12)
    q, k = sketch.linear(x, 16, "q"), sketch.linear(x, 8, "k")
    v = sketch.op("Gemm", x, sketch.initializers[-1], name="v", transB=1)
    sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out)
    report = same_after(sketch, FuseQkvPass())
    assert report.refusals[0].reason == "the weight of k is shared with another node"


def test_projection_that_is_a_graph_output_is_refused(sketch, same_after):
    x = sketch.input("x", 12)
    q, k, v = sketch.linear(x, 16, "q"), sketch.linear(x, 8, "k"), sketch.linear(x, 8, "v")
    sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out, k)
    assert same_after(sketch, FuseQkvPass()).refusals[0].reason == "k is an output of the graph"


def test_projection_with_a_second_reader_is_still_fused(sketch, same_after):
    x = sketch.input("x", 12)
    q, k, v = sketch.linear(x, 16, "q"), sketch.linear(x, 8, "k"), sketch.linear(x, 8, "v")
    extra = sketch.op("Tanh", v, name="reader")
    sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out, extra)
    assert same_after(sketch, FuseQkvPass()).rewrites == 1


def test_checkpoint_with_one_qkv_weight_is_left_alone(sketch, same_after):
    joined = sketch.linear(sketch.input("x", 12), 32, "qkv")
    q, k, v = sketch.op("Split", joined, sketch.constant("sizes", np.array([16, 8, 8])), name="split", axis=1)
    sketch.finish(sketch.attention(q, k, v, heads=4, kv_heads=2), sketch.cache_out)
    report = same_after(sketch, FuseQkvPass())
    assert (report.rewrites, report.refusals) == (0, ())
