"""safetensors files are read lazily and refused in one sentence when they are damaged or hostile."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from trtc.checkpoint.safetensors_reader import open_safetensors
from trtc.errors import CheckpointError

VALUES = np.arange(24, dtype=np.float32).reshape(6, 4) - 7.5


def write_raw(path: Path, header: Any, data: bytes = b"", header_length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if header_length is None else header_length) + text + data)
    return path


def tensor(offsets: tuple[int, int], shape: tuple[int, ...] = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_values_and_rows_come_back_as_written(dtype: Any, tmp_path: Path) -> None:
    save_file({"w": VALUES.astype(dtype), "other": np.ones(3, np.float32)}, tmp_path / "m.safetensors")
    handle = open_safetensors(tmp_path / "m.safetensors")[0]["w"]
    assert (handle.shape, handle.dtype) == ((6, 4), np.dtype(dtype).name)
    np.testing.assert_array_equal(handle.read(), VALUES.astype(dtype))
    np.testing.assert_array_equal(handle.read_rows(2, 5), VALUES[2:5].astype(dtype))
    assert handle.read_rows(6, 6).shape == (0, 4)


def test_reading_gives_views_of_the_file_not_copies(tmp_path: Path) -> None:
    save_file({"w": VALUES}, tmp_path / "m.safetensors")
    values = open_safetensors(tmp_path / "m.safetensors")[0]["w"].read()
    assert not values.flags.owndata and not values.flags.writeable


def test_empty_and_scalar_tensors_are_read(tmp_path: Path) -> None:
    save_file({"none": np.zeros((0, 4), np.float32), "one": np.array(3, np.float32)}, tmp_path / "m.safetensors")
    tensors = open_safetensors(tmp_path / "m.safetensors")[0]
    assert tensors["none"].read().shape == (0, 4)
    assert tensors["one"].read() == 3


@pytest.mark.parametrize(
    ("header", "data", "header_length"),
    [
        pytest.param({"w": tensor((0, 8))}, b"\0" * 4, None, id="data shorter than a tensor"),
        pytest.param({"w": tensor((0, 8))}, b"\0" * 9, None, id="data longer than the tensors"),
        pytest.param({"w": tensor((0, 8))}, b"\0" * 8, 10**6, id="header longer than the file"),
        pytest.param({"w": tensor((0, 8))}, b"\0" * 8, 2**63, id="header length absurd"),
        pytest.param({"a": tensor((0, 8)), "b": tensor((4, 12))}, b"\0" * 12, None, id="overlapping tensors"),
        pytest.param({"a": tensor((0, 8)), "b": tensor((12, 20))}, b"\0" * 20, None, id="hole between tensors"),
        pytest.param({"w": tensor((8, 0))}, b"\0" * 8, None, id="offsets backwards"),
        pytest.param({"w": tensor((0, 8), (3,))}, b"\0" * 8, None, id="size not that of the shape"),
        pytest.param({"w": tensor((0, 8), (2**40, 2**40))}, b"\0" * 8, None, id="huge dimensions"),
        pytest.param({"w": tensor((0, 8), dtype="F99")}, b"\0" * 8, None, id="unknown dtype"),
        pytest.param({"w": tensor((-8, 0))}, b"\0" * 8, None, id="negative offset"),
        pytest.param(b"[1, 2]", b"", None, id="header not an object"),
        pytest.param(b"{{{{", b"", None, id="header not JSON"),
        pytest.param(b"\xff\xfe", b"", None, id="header not UTF-8"),
    ],
)
def test_damaged_file_is_a_checkpoint_error_naming_it(
    header: Any, data: bytes, header_length: int | None, tmp_path: Path
) -> None:
    path = write_raw(tmp_path / "bad.safetensors", header, data, header_length)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors is not a valid safetensors file"):
        open_safetensors(path)


def test_every_truncation_is_a_checkpoint_error(tmp_path: Path) -> None:
    save_file({"w": VALUES}, tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut.safetensors").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            open_safetensors(tmp_path / "cut.safetensors")


def test_missing_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        open_safetensors(tmp_path / "nowhere.safetensors")
