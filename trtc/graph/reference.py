"""The numpy reference of every operator: what a pass must preserve and every target must match within tolerance.

Plain float32 arithmetic, written to be read. Only small graphs are evaluated this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import onnx_ir as ir

from trtc.errors import GraphError
from trtc.graph import ops

Array = np.ndarray[Any, Any]
Kernel = Callable[..., tuple[Array, ...]]


def evaluate(model: ir.Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run one step. ``inputs``: an array per graph input (see contract.py), KV pools included, none is changed.

    A KV pool may be float32 or bfloat16; what is stored in it is rounded to its type. Returns an array per graph
    output, ``logits`` and ``kv_cache.<layer>.out``. Raises GraphError for a missing input.
    """
    return evaluate_ranks([model], [inputs])[0]


def evaluate_ranks(models: Sequence[ir.Model], inputs: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Run one step of all ranks of a tensor-parallel model side by side, meeting at every collective.

    Raises GraphError when the ranks do not meet at the same collectives.
    """
    ranks = [_run(model, arrays) for model, arrays in zip(models, inputs, strict=True)]
    results: list[dict[str, Array]] = [{} for _ in ranks]
    answers: list[Array | None] = [None] * len(ranks)
    while True:
        asked = []
        for rank, answer in zip(ranks, answers, strict=True):
            try:
                asked.append(rank.send(answer))
            except StopIteration as finished:
                results[len(asked)] = finished.value
                asked.append(("", np.empty(0)))
        names = {name for name, _ in asked}
        if names == {""}:
            return results
        if len(ranks) == 1:
            raise GraphError(f"evaluate: the graph is one rank's share, it needs the others for {names.pop()}")
        if len(names) > 1:
            raise GraphError(f"ranks meet at different collectives: {sorted(names)}")
        answers = list(_collect(names.pop(), [array for _, array in asked]))


def _collect(collective: str, arrays: Sequence[Array]) -> Iterator[Array]:
    """What each rank gets."""
    if collective == "AllGather":
        result = np.concatenate(arrays, axis=1)
    else:
        result = arrays[0]
        for array in arrays[1:]:
            result = result + array
    return repeat(result, len(arrays))


def _run(model: ir.Model, inputs: Mapping[str, Array]) -> Generator[tuple[str, Array], Array | None, dict[str, Array]]:
    """One rank's step: yields (collective, this rank's array), is sent what comes of it, and returns the outputs."""
    values: dict[int, Array] = {}
    for value in model.graph.inputs:
        name = value.name or ""
        if name not in inputs:
            raise GraphError(f"evaluate: no array for input {name!r}")
        values[id(value)] = np.asarray(inputs[name])

    def load(value: ir.Value | None) -> Array | None:
        if value is None:
            return None
        if id(value) in values:
            return values[id(value)]
        if value.const_value is None:
            raise GraphError(f"evaluate: value {value.name!r} is not computed before its use")
        return np.asarray(value.const_value.numpy())

    for node in model.graph:
        operands = [load(value) for value in node.inputs]
        if (node.domain, node.op_type) in COLLECTIVES:
            assert operands[0] is not None
            answer = yield node.op_type, operands[0]
            assert answer is not None
            values[id(node.outputs[0])] = answer
            continue
        kernel = KERNELS.get((node.domain, node.op_type))
        if kernel is None:
            raise GraphError(f"evaluate: node {node.name!r} has unknown operator {node.domain}.{node.op_type}")
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        for output, result in zip(node.outputs, kernel(*operands, **attributes), strict=True):
            values[id(output)] = result
    return {value.name or "": values[id(value)] for value in model.graph.outputs}


_erf = np.frompyfunc(math.erf, 1, 1)


def _activate(x: Array, kind: str) -> Array:
    """silu, gelu (erf) or gelu_tanh of a float32 array."""
    if kind == "silu":
        with np.errstate(over="ignore"):  # exp(-x) = inf is right: silu(x) -> 0
            return np.asarray(x / (1 + np.exp(-x)), np.float32)
    if kind == "gelu":
        return np.asarray(0.5 * x * (1 + np.asarray(_erf(x / math.sqrt(2)), np.float32)), np.float32)
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), np.float32)


def _gather(data: Array, indices: Array, axis: int = 0) -> tuple[Array, ...]:
    return (np.take(data, indices, axis=axis),)


def _gather_shard(table: Array, indices: Array, first_row: int) -> tuple[Array, ...]:
    rows = indices - first_row
    own = (rows >= 0) & (rows < len(table))
    return (np.where(own[:, None], table[np.where(own, rows, 0)], np.float32(0)),)


def _gemm(x: Array, weight: Array, bias: Array | None = None, **_: Any) -> tuple[Array, ...]:
    y = x @ weight.T
    return (y if bias is None else y + bias,)


def _rms_norm(x: Array, scale: Array, epsilon: float = 1e-5, axis: int = -1) -> tuple[Array, ...]:
    return (x / np.sqrt(np.mean(x * x, axis=axis, keepdims=True) + np.float32(epsilon)) * scale,)


def _layer_norm(x: Array, scale: Array, bias: Array, epsilon: float = 1e-5, axis: int = -1) -> tuple[Array, ...]:
    centered = x - np.mean(x, axis=axis, keepdims=True)
    variance = np.mean(centered * centered, axis=axis, keepdims=True)
    return (centered / np.sqrt(variance + np.float32(epsilon)) * scale + bias,)


def _dequantize(q: Array, scale: Array, axis: int, block_size: int, output_dtype: int) -> tuple[Array, ...]:
    """Columns [j * block_size, (j + 1) * block_size) of q share scale[:, j]; the last block may be short."""
    per_column = np.repeat(scale.astype(np.float32), block_size, axis=axis)[:, : q.shape[1]]
    return (q.astype(np.float32) * per_column,)


def _dequantize_affine(q: Array, scale: Array, zero_point: Array, block_size: int) -> tuple[Array, ...]:
    columns = q.shape[1]
    wide_scale, wide_zero = (
        np.repeat(part.astype(np.float32), block_size, axis=1)[:, :columns] for part in (scale, zero_point)
    )
    return ((q.astype(np.float32) - wide_zero) * wide_scale,)


def _quantize_activation(x: Array, block_size: int) -> tuple[Array, ...]:
    rows, columns = x.shape
    groups = math.ceil(columns / block_size)
    padded = np.zeros((rows, groups * block_size), np.float32)
    padded[:, :columns] = x
    blocks = padded.reshape(rows, groups, block_size)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    q = np.clip(np.rint(blocks * inverse[:, :, None]), -127, 127).astype(np.int8)
    return q.reshape(rows, -1)[:, :columns], scale


def _split(x: Array, sizes: Array, axis: int) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _reshape(x: Array, target: Array) -> tuple[Array, ...]:
    return (x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(target)]),)


def _rotary(
    x: Array, cos: Array, sin: Array, position_ids: Array, num_heads: int, rotary_dim: int
) -> tuple[Array, ...]:
    heads = x.reshape(x.shape[0], num_heads, -1).copy()
    half = rotary_dim // 2
    a, b = heads[:, :, :half].copy(), heads[:, :, half:rotary_dim].copy()
    c, s = cos[position_ids][:, None, :], sin[position_ids][:, None, :]
    heads[:, :, :half] = a * c - b * s
    heads[:, :, half:rotary_dim] = b * c + a * s
    return (heads.reshape(x.shape),)


def _gated_activation(x: Array, activation: str) -> tuple[Array, ...]:
    gate, up = np.split(x, 2, axis=1)
    return (_activate(gate, activation) * up,)


def _add_rms_norm(x: Array, residual: Array, scale: Array, epsilon: float) -> tuple[Array, ...]:
    total = x + residual
    return (*_rms_norm(total, scale, epsilon), total)


def _add_layer_norm(x: Array, residual: Array, scale: Array, bias: Array, epsilon: float) -> tuple[Array, ...]:
    total = x + residual
    return (*_layer_norm(total, scale, bias, epsilon), total)


def _paged_attention(
    query: Array,
    key: Array,
    value: Array,
    kv_cache: Array,
    query_start: Array,
    context_lens: Array,
    block_table: Array,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scale: float,
    window: int,
    softcap: float,
    layer: int,
) -> tuple[Array, ...]:
    cache = kv_cache.copy()
    sequences = [
        (slice(query_start[seq], query_start[seq + 1]), int(context), block_table[seq])
        for seq, context in enumerate(context_lens)
    ]
    for rows, context, blocks in sequences:
        _write_kv(cache, key[rows], value[rows], context, blocks)
    output = np.zeros_like(query)
    for rows, context, blocks in sequences:
        queries = query[rows].reshape(-1, num_heads, head_dim)
        keys, values = _read_kv(cache, context, blocks, num_heads // num_kv_heads)
        scores = np.einsum("qhd,khd->hqk", queries, keys) * np.float32(scale)
        if softcap > 0:
            scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
        distance = np.arange(context - len(queries), context)[:, None] - np.arange(context)[None, :]
        visible = (distance >= 0) & ((distance < window) | (window == 0))
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        output[rows] = np.einsum("hqk,khd->qhd", weights, values).reshape(-1, num_heads * head_dim)
    return output, cache


def _write_kv(cache: Array, key: Array, value: Array, context: int, blocks: Array) -> None:
    """Store the step's rows [count, kv_heads * head_dim] at the last ``count`` positions before ``context``."""
    _, _, kv_heads, block_size, head_dim = cache.shape
    positions = np.arange(context - len(key), context)
    physical, slots = blocks[positions // block_size], positions % block_size
    cache[physical, 0, :, slots] = key.reshape(-1, kv_heads, head_dim)
    cache[physical, 1, :, slots] = value.reshape(-1, kv_heads, head_dim)


def _read_kv(cache: Array, context: int, blocks: Array, group: int) -> tuple[Array, Array]:
    """Keys and values of positions [0, context), each float32 [context, heads, head_dim]; ``group`` heads share one."""
    block_size = cache.shape[3]
    positions = np.arange(context)
    physical, slots = blocks[positions // block_size], positions % block_size
    key, value = (np.repeat(cache[physical, part, :, slots].astype(np.float32), group, axis=1) for part in (0, 1))
    return key, value


COLLECTIVES = {(ops.DOMAIN, "AllGather"), (ops.DOMAIN, "AllReduce")}

KERNELS: dict[tuple[str, str], Kernel] = {
    ("", "Add"): lambda a, b: (a + b,),
    ("", "Concat"): lambda *parts, axis: (np.concatenate(parts, axis=axis),),
    ("", "DequantizeLinear"): _dequantize,
    ("", "Gather"): _gather,
    ("", "Gelu"): lambda x, approximate="none": (_activate(x, "gelu_tanh" if approximate == "tanh" else "gelu"),),
    ("", "Gemm"): _gemm,
    ("", "LayerNormalization"): _layer_norm,
    ("", "Mul"): lambda a, b: (a * b,),
    ("", "RMSNormalization"): _rms_norm,
    ("", "Reshape"): _reshape,
    ("", "Split"): _split,
    ("", "Swish"): lambda x, alpha=1.0: (_activate(x, "silu"),),
    ("", "Tanh"): lambda x: (np.tanh(x),),
    (ops.DOMAIN, "AddLayerNormalization"): _add_layer_norm,
    (ops.DOMAIN, "AddRMSNormalization"): _add_rms_norm,
    (ops.DOMAIN, "DequantizeAffine"): _dequantize_affine,
    (ops.DOMAIN, "GatedActivation"): _gated_activation,
    (ops.DOMAIN, "GatherShard"): _gather_shard,
    (ops.DOMAIN, "PagedAttention"): _paged_attention,
    (ops.DOMAIN, "QuantizeActivation"): _quantize_activation,
    (ops.DOMAIN, "RotaryEmbedding"): _rotary,
}
