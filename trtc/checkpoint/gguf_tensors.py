"""GGUF tensors as Hugging Face's tensors: dequantized row by row, with llama.cpp's changes of layout undone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtc.checkpoint.gguf_file import GgufTensorInfo
from trtc.checkpoint.safetensors_reader import np_dtype
from trtc.checkpoint.tensor_handle import Array, TensorHandle, WrappedTensor, check_rows
from trtc.errors import CheckpointError

_PLAIN = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_QUANTIZED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
_CHUNK = 1 << 18  # values dequantized at a time, so that temporaries stay small


@dataclass(frozen=True)
class GgufTensor:
    """The tensor as stored, named as Hugging Face does."""

    name: str
    info: GgufTensorInfo
    mapping: Array  # uint8, the whole file

    def __post_init__(self) -> None:
        if self.info.ggml_type not in (*_PLAIN, *_QUANTIZED):
            raise CheckpointError(
                f"tensor {self.info.name} is stored as {self.info.ggml_type}, which cannot be read; "
                f"supported: {', '.join((*_PLAIN, *_QUANTIZED))}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def storage(self) -> str:
        return self.info.ggml_type

    @property
    def dtype(self) -> str:
        return _PLAIN.get(self.info.ggml_type, "float32")

    def read(self) -> Array:
        if len(self.shape) == 1:
            return self._values(self.stored_bytes())
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> Array:
        check_rows(self.name, self.shape, start, stop)
        if len(self.shape) == 1:
            return self.read()[start:stop]
        row_bytes = self.info.bytes // self.shape[0] if self.shape[0] else 0
        raw = self.stored_bytes()[start * row_bytes : stop * row_bytes]
        return self._values(raw).reshape(stop - start, *self.shape[1:])

    def read_selected(self, rows: Array) -> Array:
        """The rows with the given indices, in that order: [len(rows), *shape[1:]]."""
        if len(self.shape) == 1:
            return self.read()[rows]
        raw = self.stored_bytes().reshape(self.shape[0], -1)[rows].reshape(-1)
        return self._values(raw).reshape(len(rows), *self.shape[1:])

    def stored_bytes(self) -> Array:
        """A view of the mapping: uint8 [bytes]."""
        return self.mapping[self.info.offset : self.info.offset + self.info.bytes].view(np.ndarray)

    def _values(self, raw: Array) -> Array:
        """Flat bytes of whole rows to flat values."""
        plain = _PLAIN.get(self.info.ggml_type)
        if plain is not None:
            return raw.view(np_dtype(plain))
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

        kind = GGMLQuantizationType[self.info.ggml_type]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        blocks = raw.reshape(-1, block_bytes)
        values = np.empty((len(blocks), block), np.float32)
        step = _CHUNK // block
        for at in range(0, len(blocks), step):
            chunk = blocks[at : at + step].reshape(1, -1)  # as one row: the package works through rows in small groups
            values[at : at + step] = dequantize(chunk, kind).reshape(-1, block)
        return values.reshape(-1)


@dataclass(frozen=True)
class UnpermutedRows(WrappedTensor):
    """Query and key projections of llama: llama.cpp interleaves the two halves of each head for its rotary kernel
    (rows [heads, head_dim / 2, 2]); Hugging Face keeps them apart (rows [heads, 2, head_dim / 2])."""

    base: GgufTensor
    heads: int

    def read(self) -> Array:
        return self.read_rows(0, self.shape[0])

    def read_rows(self, start: int, stop: int) -> Array:
        check_rows(self.name, self.shape, start, stop)
        half = self.shape[0] // self.heads // 2
        head, within = np.divmod(np.arange(start, stop), 2 * half)
        side, channel = np.divmod(within, half)
        return self.base.read_selected((head * half + channel) * 2 + side)


@dataclass(frozen=True)
class MinusOne(WrappedTensor):
    """Gemma's norm weights: Hugging Face scales by 1 + weight, llama.cpp stores the sum."""

    base: GgufTensor

    @property
    def dtype(self) -> str:
        return "float32"

    def read(self) -> Array:
        values: Array = self.base.read().astype(np.float32) - np.float32(1)
        return values

    def read_rows(self, start: int, stop: int) -> Array:
        values: Array = self.base.read_rows(start, stop).astype(np.float32) - np.float32(1)
        return values


def same_bytes(one: TensorHandle, other: TensorHandle) -> bool:
    """Whether two stored tensors hold the same bytes of the same type."""
    if not isinstance(one, GgufTensor) or not isinstance(other, GgufTensor):
        return False
    if (one.shape, one.storage) != (other.shape, other.storage):
        return False
    mine, theirs, step = one.stored_bytes(), other.stored_bytes(), 1 << 24
    return all(np.array_equal(mine[at : at + step], theirs[at : at + step]) for at in range(0, len(mine), step))
