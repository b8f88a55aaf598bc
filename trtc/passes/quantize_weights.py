"""Replace the matrices of linear layers by integers and their scales, as QuantConfig says.

Eight bits are symmetric; four have a zero point per group, which need not be an integer, unless the settings say
otherwise. The matrix of the embedding or of the logits keeps 8 bits, or stays as it is. With int8 activations (W8A8,
W4A8) the input of every linear layer is quantized as the step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from trtc.config import PER_CHANNEL, QuantConfig
from trtc.graph import contract
from trtc.graph.builder import LazyWeight
from trtc.graph.ops import DOMAIN
from trtc.passes.base import RewritePass
from trtc.passes.lazy_weights import weight_of
from trtc.passes.rewriting import insert_before, is_dequantize, is_op, producer, unique_name
from trtc.quantize.groupwise import QUANTIZED_META, QuantizedWeight


class MatrixUse(NamedTuple):
    """A node that reads a matrix, and which of its inputs that is."""

    node: ir.Node
    operand: int


class QuantizeWeightsPass(RewritePass[MatrixUse]):
    """``Gemm(x, W)`` -> ``Gemm(x, DequantizeLinear(Wq, scale))``, and so for the embedding's Gather.

    In 4 bits with zero points trtc.DequantizeAffine stands for DequantizeLinear. A matrix that several nodes read is
    quantized once.
    """

    def __init__(self, config: QuantConfig) -> None:
        self.config = config

    def requires(self, model: ir.Model) -> str | None:
        if self.config.quant_algo.weight_bits is None:
            return "the quantization algorithm is none"
        if any(is_dequantize(node) for node in model.graph):
            return "the graph holds quantized weights already"
        return None

    def ensures(self, model: ir.Model) -> str | None:
        for node in model.graph:
            if not is_op(node, "Gemm") or self._stays(node, node.inputs[1]):
                continue
            if not is_dequantize(producer(node.inputs[1])):
                return f"the weight of {node.name} is not quantized"
            if self.config.quant_algo.int8_activations and not is_op(producer(node.inputs[0]), "DequantizeLinear"):
                return f"the input of {node.name} is not quantized"
        return None

    def pattern(self, node: ir.Node) -> MatrixUse | None:
        if is_op(node, "Gemm"):
            return MatrixUse(node, 1)
        return MatrixUse(node, 0) if _is_embedding(node) else None

    def check(self, match: MatrixUse) -> str | None:
        matrix = match.node.inputs[match.operand]
        if matrix is None or not (matrix.is_initializer() or is_dequantize(matrix.producer())):
            return f"the weight of {match.node.name} is computed, not an initializer"
        if self._stays(match.node, matrix):
            return "the embedding and logits matrix stays as it is (quantize_vocabulary)"
        return None

    def rewrite(self, graph: ir.Graph, match: MatrixUse) -> None:
        matrix = match.node.inputs[match.operand]
        assert matrix is not None
        if matrix.is_initializer():
            self._quantize_matrix(graph, match.node, matrix)
        if self.config.quant_algo.int8_activations and is_op(match.node, "Gemm"):
            self._quantize_input(graph, match.node)

    def _stays(self, node: ir.Node, matrix: ir.Value | None) -> bool:
        assert node.graph is not None and matrix is not None
        return not self.config.quantize_vocabulary and _is_vocabulary_matrix(node.graph, matrix)

    def _quantize_matrix(self, graph: ir.Graph, first_reader: ir.Node, matrix: ir.Value) -> None:
        bits = self.config.quant_algo.weight_bits
        assert bits is not None
        if _is_vocabulary_matrix(graph, matrix):
            bits = 8
        quantized = self._quantized(weight_of(matrix), bits)
        readers = tuple(matrix.uses())
        del graph.initializers[matrix.name or ""]
        operands = _initializers(graph, quantized, matrix.name or "")
        name = unique_name(graph, f"{matrix.name}.dequantized")
        if not quantized.has_zero_point:
            dequantized = self._dequantize_linear(first_reader, operands, name, quantized.group_size)
        else:
            attributes = {"block_size": quantized.group_size}
            dequantized = insert_before(
                first_reader, "DequantizeAffine", operands, attributes, domain=DOMAIN, name=name
            )
        for node, index in readers:
            node.replace_input_with(index, dequantized.outputs[0])

    def _quantized(self, weight: LazyWeight, bits: int) -> QuantizedWeight:
        group_size = weight.shape[1] if self.config.group_size == PER_CHANNEL else self.config.group_size
        return QuantizedWeight(weight, bits, group_size, symmetric=not self.config.has_zero_point)

    def _quantize_input(self, graph: ir.Graph, gemm: ir.Node) -> None:
        x = gemm.inputs[0]
        assert x is not None
        if is_op(x.producer(), "DequantizeLinear"):
            return  # x feeds an earlier linear layer too
        readers = [(node, index) for node, index in x.uses() if is_op(node, "Gemm") and index == 0]
        integers = insert_before(
            gemm,
            "QuantizeActivation",
            [x],
            {"block_size": self.config.group_size},
            domain=DOMAIN,
            name=unique_name(graph, f"{gemm.name}.input_quantized"),
        )
        name = unique_name(graph, f"{gemm.name}.input_dequantized")
        floats = self._dequantize_linear(gemm, integers.outputs, name, self.config.group_size)
        for node, index in readers:
            node.replace_input_with(index, floats.outputs[0])

    def _dequantize_linear(self, before: ir.Node, operands: Sequence[ir.Value], name: str, group_size: int) -> ir.Node:
        attributes = {"axis": 1, "block_size": group_size, "output_dtype": int(ir.DataType.FLOAT)}
        return insert_before(before, "DequantizeLinear", operands, attributes, name=name)


def _is_embedding(node: ir.Node) -> bool:
    """Whether the node looks tokens up; a table of learned positions is small and stays as it is."""
    indices = node.inputs[1] if is_op(node, "Gather") or is_op(node, "GatherShard", DOMAIN) else None
    return indices is not None and indices.is_graph_input() and indices.name == contract.INPUT_IDS.name


def _is_vocabulary_matrix(graph: ir.Graph, matrix: ir.Value) -> bool:
    return any(_is_embedding(node) or _makes_logits(graph, node) for node, _ in matrix.uses())


def _makes_logits(graph: ir.Graph, gemm: ir.Node) -> bool:
    """Whether the output of ``gemm`` becomes the logits without another linear layer in between."""
    logits = next(value for value in graph.outputs if value.name == contract.logits(vocab_size=0).name)
    pending = [logits.producer()]
    while pending:
        node = pending.pop()
        if node is gemm:
            return True
        if node is not None and not is_op(node, "Gemm"):
            pending.extend(producer(value) for value in node.inputs)
    return False


def _initializers(graph: ir.Graph, weight: QuantizedWeight, name: str) -> list[ir.Value]:
    """The integers [out, in], scales and, where it has them, zeros [out, groups] of ``weight``, lazy."""
    four_bits = ir.DataType.UINT4 if weight.has_zero_point else ir.DataType.INT4
    integer = ir.DataType.INT8 if weight.bits == 8 else four_bits
    per_group = (weight.shape[0], weight.groups)

    def read_integers() -> ir.TensorProtocol:
        values = weight.read().q
        return ir.Tensor(values if weight.bits == 8 else values.astype(integer.numpy()))

    def read_scales() -> ir.TensorProtocol:
        return ir.Tensor(weight.read().scale)

    def read_zeros() -> ir.TensorProtocol:
        zero = weight.read().zero
        assert zero is not None
        return ir.Tensor(zero)

    parts: list[tuple[str, ir.DataType, tuple[int, int], Callable[[], ir.TensorProtocol]]] = [
        ("q", integer, weight.shape, read_integers),
        ("scale", ir.DataType.FLOAT16, per_group, read_scales),
    ]
    if weight.has_zero_point:
        parts.append(("zero", ir.DataType.FLOAT16, per_group, read_zeros))
    values = []
    for suffix, dtype, shape, read in parts:
        dims = ir.Shape(shape)
        value = ir.Value(name=unique_name(graph, f"{name}.{suffix}"), shape=dims, type=ir.TensorType(dtype))
        value.const_value = ir.LazyTensor(read, dtype=dtype, shape=dims, name=value.name)
        value.meta[QUANTIZED_META] = weight
        graph.register_initializer(value)
        values.append(value)
    return values
