"""What TensorRT logs or refuses becomes an error that names the layer."""

from __future__ import annotations

from types import SimpleNamespace

import onnx_ir as ir
import pytest

from trtc.errors import BuildError
from trtc.targets.tensorrt.handlers import build_nodes
from trtc.targets.tensorrt.log import Log
from trtc.targets.tensorrt.network import NetworkBuilder, NetworkOptions


class ILogger:
    Severity = SimpleNamespace(INTERNAL_ERROR=0, ERROR=1, WARNING=2, INFO=3)


@pytest.fixture
def log():
    return Log(SimpleNamespace(ILogger=ILogger))


def test_warnings_are_no_errors(log):
    log.logger.log(2, "careful")
    log.logger.log(3, "by the way")
    log.check("Gemm 'a'")


def test_errors_are_said_once_with_the_layer_and_then_forgotten(log):
    for message in ("bad\n  type", "bad type", "worse"):
        log.logger.log(1, message)
    with pytest.raises(BuildError, match=r"^TensorRT cannot build Gemm 'a': bad type; worse$"):
        log.check("Gemm 'a'")
    log.check("Gemm 'b'")


def test_a_missing_driver_is_no_error(log):
    log.logger.log(1, "catchCudaError: CUDA driver version is insufficient for CUDA runtime version")
    log.check()


def builder(log, network):
    node = ir.node("Gelu", [ir.Value(name="x")], name="layers.3.act")
    graph = ir.Graph([], [], nodes=[node], name="g")
    options = NetworkOptions(SimpleNamespace(adds_plugins=True), "float16", lambda fields: None)
    trt = SimpleNamespace(float16="half")
    net = NetworkBuilder(trt, network, log, options, ir.Model(graph, ir_version=12), None)
    net.start(node)
    return net


def test_a_layer_that_is_not_made_is_an_error_of_its_node(log):
    net = builder(log, None)
    with pytest.raises(BuildError, match=r"TensorRT cannot build Gelu 'layers.3.act': it makes no layer for cast"):
        net.out(None, "cast")
    log.logger.log(1, "the cast is bad")
    with pytest.raises(BuildError, match=r"Gelu 'layers.3.act': the cast is bad"):
        net.out(None, "cast")


def test_a_setter_that_is_refused_in_the_log_is_an_error_of_its_node(log):
    net = builder(log, None)
    log.logger.log(1, "ISliceLayer::setInput: refused")
    with pytest.raises(BuildError, match=r"Gelu 'layers.3.act': ISliceLayer::setInput: refused"):
        net.finish()


def test_names_of_layers_are_the_nodes_and_unique(log):
    net = builder(log, None)
    layers = [SimpleNamespace(name=""), SimpleNamespace(name=""), SimpleNamespace(name="")]
    for layer, what in zip(layers, ("", "cast", "cast"), strict=True):
        net.named(layer, what)
    assert [layer.name for layer in layers] == ["layers.3.act", "layers.3.act.cast", "layers.3.act.cast.2"]


def test_an_operator_without_a_handler_is_refused_by_name():
    node = ir.node("AllReduce", [ir.Value(name="x")], domain="trtc", name="layers.0.reduce")
    model = ir.Model(ir.Graph([], [], nodes=[node], name="g"), ir_version=12)
    with pytest.raises(BuildError, match=r"cannot build AllReduce 'layers.0.reduce': there is no layer for it"):
        build_nodes(None, model)
