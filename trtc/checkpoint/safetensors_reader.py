"""safetensors files as lazy tensors over one memory mapping per file.

The safetensors library validates each file (header length, offsets, overlaps, sizes against the file); the values are
then views of a read-only mapping, so a tensor costs no memory until its pages are touched.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtc.checkpoint.tensor_handle import Array, TensorHandle, check_rows
from trtc.errors import CheckpointError

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class SafetensorsTensor:
    """A view of ``[offset, offset + bytes)`` of the mapping."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: str
    mapping: Array  # uint8, the whole file
    offset: int

    def read(self) -> Array:
        return self._view(0, math.prod(self.shape), self.shape)

    def read_rows(self, start: int, stop: int) -> Array:
        check_rows(self.name, self.shape, start, stop)
        row = math.prod(self.shape[1:])
        return self._view(start * row, (stop - start) * row, (stop - start, *self.shape[1:]))

    def _view(self, first: int, count: int, shape: tuple[int, ...]) -> Array:
        dtype = np_dtype(self.dtype)
        return np.frombuffer(self.mapping.data, dtype, count, self.offset + first * dtype.itemsize).reshape(shape)


def np_dtype(name: str) -> np.dtype[np.generic]:
    """``np.dtype`` of a name, the ml_dtypes kinds included."""
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        dtype: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    return np.dtype(name)


def read_header(path: Path) -> bytes:
    """The JSON header of ``path``. Raises CheckpointError when the safetensors library finds the file invalid."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
        with path.open("rb") as file:
            return file.read(int.from_bytes(file.read(8), "little"))
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a valid safetensors file ({error}); fetch or export it again") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def open_safetensors(path: Path) -> tuple[dict[str, TensorHandle], bytes, Array]:
    """The tensors of one file, by name, its header bytes, and the mapping that the tensors view.

    Raises CheckpointError when the file is unreadable, damaged, or uses a dtype that numpy has no word for.
    """
    header = read_header(path)
    data_start = 8 + len(header)
    mapping: Array = np.memmap(path, np.uint8, "r")
    tensors: dict[str, TensorHandle] = {}
    for name, info in json.loads(header).items():
        if name == "__metadata__":
            continue
        dtype = _DTYPES.get(info["dtype"])
        if dtype is None:
            raise CheckpointError(
                f"{path}: tensor {name} has dtype {info['dtype']}, expected one of {', '.join(_DTYPES)}"
            )
        offset = data_start + info["data_offsets"][0]
        tensors[name] = SafetensorsTensor(name, tuple(info["shape"]), dtype, info["dtype"], mapping, offset)
    return tensors, header, mapping
