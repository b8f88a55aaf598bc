"""The header of a GGUF file: metadata and tensor records, every length checked before it is used.

``gguf.GGUFReader`` trusts the lengths it reads and makes an array object per string (seconds for a large vocabulary),
so the header is read here; block sizes and dequantizers stay the gguf package's.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trtc.checkpoint.tensor_handle import Array
from trtc.errors import CheckpointError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_MAX_DIMS = 4
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class GgufTensorInfo:
    """One tensor record. ``shape`` is in numpy order; ``offset`` counts from the start of the file."""

    name: str
    ggml_type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class GgufFile:
    """``header_bytes`` is where the tensor data may begin; ``mapping`` is the whole file, uint8."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[GgufTensorInfo, ...]
    mapping: Array
    header_bytes: int


def read_gguf(path: Path) -> GgufFile:
    """Map ``path`` and read its header. Raises CheckpointError when it is not a complete, sane GGUF file."""
    try:
        mapping: Array = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    reader = _HeaderReader(path, mapping)
    metadata = reader.metadata()
    tensors = reader.tensors(metadata)
    return GgufFile(path, metadata, tensors, mapping, reader.at)


class _HeaderReader:
    """A cursor over the mapping that refuses to step past its end."""

    def __init__(self, path: Path, mapping: Array) -> None:
        self.path = path
        self.data = memoryview(mapping.data).cast("B")
        self.at = 0
        if bytes(self._take(4)) != b"GGUF":
            raise CheckpointError(f"{path} is not a GGUF file: it does not begin with GGUF")
        version = self._scalar("I")
        if version not in (2, 3):
            kind = "big-endian" if version & 0xFFFF == 0 else f"version {version}"
            raise CheckpointError(
                f"{path} is a {kind} GGUF file, expected little-endian version 2 or 3; convert it again"
            )
        self.tensor_count: int = self._scalar("Q")
        self.entry_count: int = self._scalar("Q")

    def metadata(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in range(self._count(self.entry_count, 12)):
            key = self._string()
            if key in entries:
                raise CheckpointError(f"{self.path}: metadata key {key} is given twice")
            entries[key] = self._value(self._scalar("I"), key)
        return entries

    def tensors(self, metadata: dict[str, Any]) -> tuple[GgufTensorInfo, ...]:
        records = [self._tensor_record() for _ in range(self._count(self.tensor_count, 24))]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise CheckpointError(f"{self.path}: general.alignment is {alignment!r}, expected a power of two")
        data_start = -(-self.at // alignment) * alignment
        tensors = tuple(self._tensor(record, data_start) for record in records)
        self._check_layout(tensors)
        return tensors

    def _tensor_record(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dims: int = self._scalar("I")
        if not 1 <= dims <= _MAX_DIMS:
            raise CheckpointError(f"{self.path}: tensor {name!r} has {dims} dimensions, expected 1 to {_MAX_DIMS}")
        shape = tuple(self._scalar("Q") for _ in range(dims))
        return name, shape[::-1], self._scalar("I"), self._scalar("Q")

    def _tensor(self, record: tuple[str, tuple[int, ...], int, int], data_start: int) -> GgufTensorInfo:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        name, shape, type_id, offset = record
        try:
            ggml_type = GGMLQuantizationType(type_id)
        except ValueError:
            raise CheckpointError(f"{self.path}: tensor {name} has unknown ggml type {type_id}") from None
        block, block_bytes = GGML_QUANT_SIZES[ggml_type]
        if shape[-1] % block:
            raise CheckpointError(
                f"{self.path}: tensor {name} {list(shape)} does not divide into {ggml_type.name} blocks"
            )
        size = math.prod(shape) // block * block_bytes
        start = data_start + offset
        if start + size > len(self.data):
            raise CheckpointError(
                f"{self.path}: tensor {name} {list(shape)} ends at byte {start + size} of {len(self.data)}; "
                "the download is incomplete"
            )
        return GgufTensorInfo(name, ggml_type.name, shape, start, size)

    def _check_layout(self, tensors: tuple[GgufTensorInfo, ...]) -> None:
        ordered = sorted(tensors, key=lambda tensor: tensor.offset)
        for before, after in itertools.pairwise(ordered):
            if before.offset + before.bytes > after.offset:
                raise CheckpointError(f"{self.path}: tensors {before.name} and {after.name} overlap")
        if len({tensor.name for tensor in tensors}) != len(tensors):
            raise CheckpointError(f"{self.path}: two tensors have the same name")

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise CheckpointError(f"{self.path}: metadata key {key} has unknown type {kind}")
        value = self._scalar(_SCALARS[kind])
        return float(str(np.float32(value))) if kind == _FLOAT32 else value  # 1e-05, not 9.999999747378752e-06

    def _array(self, key: str) -> list[Any]:
        kind: int = self._scalar("I")
        count: int = self._scalar("Q")
        if kind == _STRING:
            return [self._string() for _ in range(self._count(count, 8))]
        if kind not in _SCALARS:  # nested arrays are legal but mean nothing to us
            raise CheckpointError(f"{self.path}: metadata key {key} is an array of unsupported type {kind}")
        code = _SCALARS[kind]
        size = struct.calcsize("<" + code)
        return list(struct.unpack(f"<{count}{code}", self._take(self._count(count, size) * size)))

    def _string(self) -> str:
        try:
            return str(self._take(self._scalar("Q")), "utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{self.path}: a string before byte {self.at} is not UTF-8: {error.reason}"
            ) from error

    def _scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _count(self, count: int, least_bytes: int) -> int:
        """A count of items of at least ``least_bytes`` each must fit in what is left of the file."""
        if count * least_bytes > len(self.data) - self.at:
            raise self._truncated(count * least_bytes)
        return count

    def _take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise self._truncated(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def _truncated(self, size: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: the header asks for {size} bytes at byte {self.at}, but the file has {len(self.data)}; "
            "it is damaged or the download is incomplete"
        )
