import pytest

from trtc.errors import CheckpointError, GraphError
from trtc.passes.base import Pass, PassReport, PostconditionError, PreconditionError


class HookPass(Pass):
    def __init__(self, *, before=None, action=None, after=None):
        self.before, self.action, self.after = before, action, after

    def requires(self, model):
        return self.before

    def ensures(self, model):
        return self.after

    def apply(self, model):
        if self.action:
            self.action(model)
        return PassReport(self.name, 0)


def raises(error):
    def action(model):
        raise error

    return action


@pytest.fixture
def model(sketch):
    return sketch.finish(sketch.op("Tanh", sketch.input("x", 2), name="y")).model


def test_name_is_the_class_name_in_file_name_form():
    assert HookPass().name == "hook"


def test_broken_precondition_stops_the_pass_before_it_runs(model):
    ran = []
    with pytest.raises(PreconditionError, match="pass hook cannot run: no nodes"):
        HookPass(before="no nodes", action=ran.append)(model)
    assert not ran


def test_broken_postcondition_names_the_pass(model):
    with pytest.raises(PostconditionError, match="pass hook left a broken graph: a stray node"):
        HookPass(after="a stray node")(model)


def test_changing_the_bindings_is_refused(model):
    def rename(model):
        model.graph.outputs[0].name = "z"

    with pytest.raises(PostconditionError, match="changed the step's bindings"):
        HookPass(action=rename)(model)


def test_failure_inside_a_pass_is_a_graph_error_with_its_cause(model):
    with pytest.raises(GraphError, match="pass hook failed: boom") as caught:
        HookPass(action=raises(RuntimeError("boom")))(model)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_our_own_errors_pass_through(model):
    with pytest.raises(CheckpointError, match="bad tensor"):
        HookPass(action=raises(CheckpointError("bad tensor")))(model)
