"""Schemas of the ``trtc`` operator domain, version 1: used only where ONNX has no operator of its own.

Every other node is standard ONNX (opset 24): Gather, Gemm (``transB=1``: a linear layer keeps Hugging Face's
[out, in] weight order, bias as its third input), RMSNormalization, LayerNormalization, DequantizeLinear (blocked along
axis 1, ``output_dtype`` FLOAT), Swish, Gelu, Tanh, Add, Mul, Split (axis 1), Reshape, Concat.
"""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "trtc"
DOMAIN_VERSION = 1
ONNX_OPSET = 24


# Operators, by domain and name, whose output stands for a quantized weight or for quantized activations.
DEQUANTIZERS = (("", "DequantizeLinear"), (DOMAIN, "DequantizeAffine"))


@dataclass(frozen=True)
class OpSchema:
    """Inputs, outputs and attributes (name to type; every one is required) of one operator."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, type]
    doc: str


PAGED_ATTENTION = OpSchema(
    "PagedAttention",
    ("query", "key", "value", "kv_cache", "query_start", "context_lens", "block_table"),
    ("output", "kv_cache_out"),
    {
        "layer": int,
        "num_heads": int,
        "num_kv_heads": int,
        "head_dim": int,
        "scale": float,
        "window": int,
        "softcap": float,
    },
    """Write key and value into the paged cache, then attend causally over it.

    query [tokens, num_heads * head_dim], key and value [tokens, num_kv_heads * head_dim], output as query.
    Row i of sequence s stands at position context_lens[s] - (query_start[s+1] - query_start[s]) + i and sees the
    positions p' <= p with p - p' < window (window 0: all). softcap c > 0 maps scores x to c * tanh(x / c).""",
)

ROTARY_EMBEDDING = OpSchema(
    "RotaryEmbedding",
    ("x", "cos", "sin", "position_ids"),
    ("y",),
    {"num_heads": int, "rotary_dim": int},
    """ONNX's RotaryEmbedding on packed tokens (the standard one demands a batch axis), half-split pairs.

    x, y [tokens, num_heads * head_dim]; cos, sin float32 [positions, rotary_dim / 2]; position_ids [tokens].
    Channels rotary_dim and up of each head pass through.""",
)

GATED_ACTIVATION = OpSchema(
    "GatedActivation",
    ("x",),
    ("y",),
    {"activation": str},
    """y = act(x[:, :n]) * x[:, n:]; x [tokens, 2 n], y [tokens, n]; activation silu, gelu or gelu_tanh.""",
)

ADD_RMS_NORMALIZATION = OpSchema(
    "AddRMSNormalization",
    ("x", "residual", "scale"),
    ("y", "sum"),
    {"epsilon": float},
    """sum = x + residual; y = RMSNormalization(sum, scale); all [tokens, hidden].""",
)

ADD_LAYER_NORMALIZATION = OpSchema(
    "AddLayerNormalization",
    ("x", "residual", "scale", "bias"),
    ("y", "sum"),
    {"epsilon": float},
    """sum = x + residual; y = LayerNormalization(sum, scale, bias); all [tokens, hidden].""",
)

QUANTIZE_ACTIVATION = OpSchema(
    "QuantizeActivation",
    ("x",),
    ("y", "scale"),
    {"block_size": int},
    """Dynamic symmetric int8 per row and block of columns, the input side of W8A8 and W4A8.

    x [tokens, in]; y int8 [tokens, in]; scale float32 [tokens, ceil(in / block_size)] with
    scale = max|x| / 127 over the block, y = clip(round_half_even(x * (1 / scale)), -127, 127),
    and y = 0 where scale = 0.""",
)

DEQUANTIZE_AFFINE = OpSchema(
    "DequantizeAffine",
    ("x", "scale", "zero_point"),
    ("y",),
    {"block_size": int},
    """DequantizeLinear of int4 weights whose zero points are not integers, which ONNX's cannot have.

    x uint4 [out, in]; scale and zero_point float16 [out, ceil(in / block_size)]; y float32 [out, in] with
    y = (x - zero_point) * scale, both those of the block of columns.""",
)

ALL_REDUCE = OpSchema(
    "AllReduce",
    ("x",),
    ("y",),
    {},
    """y = the sum of every rank's x, in the order of ranks; any shape.""",
)

ALL_GATHER = OpSchema(
    "AllGather",
    ("x",),
    ("y",),
    {"world": int},
    """y = every rank's x side by side in the order of ranks; x [rows, n], y [rows, world * n].""",
)

GATHER_SHARD = OpSchema(
    "GatherShard",
    ("table", "indices"),
    ("y",),
    {"first_row": int},
    """Gather from one rank's rows of a table: y[i] = table[indices[i] - first_row], zeros where that is no row of it.

    table float [rows, columns]; indices int32 [n]; y [n, columns].""",
)

SCHEMAS: dict[str, OpSchema] = {
    schema.name: schema
    for schema in (
        PAGED_ATTENTION,
        ROTARY_EMBEDDING,
        GATED_ACTIVATION,
        ADD_RMS_NORMALIZATION,
        ADD_LAYER_NORMALIZATION,
        QUANTIZE_ACTIVATION,
        DEQUANTIZE_AFFINE,
        ALL_REDUCE,
        ALL_GATHER,
        GATHER_SHARD,
    )
}
