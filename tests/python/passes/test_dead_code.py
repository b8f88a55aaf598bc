from trtc.passes.dead_code import DeadCodePass


def test_unused_nodes_and_initializers_go_in_one_run(sketch, same_after):
    x = sketch.input("x", 12)
    kept = sketch.op("Tanh", x, name="kept")
    sketch.op("Tanh", sketch.linear(x, 4, "dead_linear"), name="dead")
    sketch.weight("never_read", 3)
    sketch.finish(kept)
    assert same_after(sketch, DeadCodePass()).rewrites == 4
    assert sketch.op_types() == ["Tanh"]
    assert not sketch.graph.initializers


def test_node_with_one_used_output_stays(sketch, same_after):
    parts = sketch.op("Split", sketch.input("x", 12), sketch.constant("sizes", [4, 8]), name="split", axis=1)
    sketch.finish(sketch.op("Tanh", parts[1], name="tanh"))
    assert same_after(sketch, DeadCodePass()).rewrites == 0


def test_inputs_stay_even_when_nothing_reads_them(sketch, same_after):
    sketch.input("ignored", 3)
    sketch.finish(sketch.op("Tanh", sketch.input("x", 12), name="tanh"))
    same_after(sketch, DeadCodePass())
    assert [value.name for value in sketch.graph.inputs] == ["ignored", "x"]
