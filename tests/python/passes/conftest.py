"""Hand-made graphs for the pass tests: small, seeded, evaluated by the numpy reference before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from trtc.graph import ops
from trtc.graph.builder import make_node, make_value
from trtc.graph.reference import evaluate
from trtc.graph.shapes import FLOAT, INT32, ValueType
from trtc.passes.base import Pass, PassReport

ROWS = 5
SEED = 7


class Sketch:
    """Builds a graph node by node; ``run`` evaluates it on seeded inputs of ``ROWS`` rows."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.inputs: list[ir.Value] = []
        self.initializers: list[ir.Value] = []
        self.nodes: list[ir.Node] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.model: ir.Model | None = None

    def input(self, name: str, columns: int) -> ir.Value:
        """A float32 input [tokens, columns]."""
        return self._input(name, FLOAT, ("tokens", columns), self._normal(ROWS, columns))

    def ids(self, name: str, below: int) -> ir.Value:
        """An int32 input [tokens] of values in [0, below)."""
        return self._input(name, INT32, ("tokens",), self.rng.integers(0, below, ROWS).astype(np.int32))

    def weight(self, name: str, *shape: int) -> ir.Value:
        """A random float32 initializer."""
        return self.constant(name, self._normal(*shape))

    def constant(self, name: str, array: Any) -> ir.Value:
        tensor = ir.Tensor(np.asarray(array), name=name)
        value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers.append(value)
        return value

    def op(self, op_type: str, *inputs: ir.Value | None, name: str, **attributes: Any) -> Any:
        """Append a node; returns its output, or a tuple of several."""
        domain = ops.DOMAIN if op_type in ops.SCHEMAS else ""
        node = make_node(op_type, inputs, attributes, domain=domain, name=name)
        self.nodes.append(node)
        return node.outputs[0] if len(node.outputs) == 1 else tuple(node.outputs)

    def linear(self, x: ir.Value, out: int, name: str, bias: bool = False) -> ir.Value:
        assert x.shape is not None
        weight = self.weight(f"{name}.weight", out, int(x.shape[-1]))  # type: ignore[arg-type]
        operands = [x, weight, self.weight(f"{name}.bias", out)] if bias else [x, weight]
        return self.op("Gemm", *operands, name=name, transB=1)

    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value, heads: int, kv_heads: int) -> ir.Value:
        """PagedAttention of one sequence of ROWS tokens over two blocks of four."""
        assert query.shape is not None
        head_dim = int(query.shape[-1]) // heads  # type: ignore[arg-type]
        pool = (6, 2, kv_heads, 4, head_dim)
        cache = self._input("kv_cache.0", FLOAT, ("blocks", *pool[1:]), np.zeros(pool, np.float32))
        step = [
            self._input("query_start", INT32, ("seqs + 1",), np.array([0, ROWS], np.int32)),
            self._input("context_lens", INT32, ("seqs",), np.array([ROWS], np.int32)),
            self._input("block_table", INT32, ("seqs", "max_blocks"), np.array([[4, 1]], np.int32)),
        ]
        settings = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim, "scale": 0.5}
        output, self.cache_out = self.op(
            "PagedAttention", query, key, value, cache, *step, name="attn", layer=0, window=0, softcap=0.0, **settings
        )
        return output

    def finish(self, *outputs: ir.Value) -> Sketch:
        graph = ir.Graph(
            self.inputs,
            outputs,
            nodes=self.nodes,
            initializers=self.initializers,
            opset_imports={"": ops.ONNX_OPSET, ops.DOMAIN: ops.DOMAIN_VERSION},
            name="sketch",
        )
        self.model = ir.Model(graph, ir_version=11)
        return self

    @property
    def graph(self) -> ir.Graph:
        assert self.model is not None
        return self.model.graph

    def run(self) -> dict[str, np.ndarray]:
        assert self.model is not None
        return evaluate(self.model, self.arrays)

    def op_types(self) -> list[str]:
        return [node.op_type for node in self.graph]

    def _input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str], array: np.ndarray) -> ir.Value:
        value = make_value(name, ValueType(dtype, tuple(shape)))
        self.inputs.append(value)
        self.arrays[name] = array
        return value

    def _normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)


@pytest.fixture
def sketch() -> Sketch:
    return Sketch()


@pytest.fixture
def same_after() -> Callable[[Sketch, Pass], PassReport]:
    """Run a pass and require equal outputs before and after; returns the report.

    A joined product may sum in another order inside BLAS, so the bound is a few units in the last place of the
    largest output: 16 * eps * max|y|.
    """

    def check(sketch: Sketch, rewrite: Pass) -> PassReport:
        before = sketch.run()
        assert sketch.model is not None
        report = rewrite(sketch.model)
        after = sketch.run()
        assert after.keys() == before.keys()
        for name, want in before.items():
            bound = 16 * np.finfo(np.float32).eps * max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(after[name], want, rtol=0, atol=bound, err_msg=name)
        return report

    return check
