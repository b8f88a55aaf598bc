"""GGUF headers are read as the gguf package reads them, and damaged or hostile ones are refused without a crash."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gguf_files import write_model_gguf
from tests.tiny_models import tiny_model
from trtc.checkpoint.gguf_file import read_gguf
from trtc.checkpoint.reader import open_checkpoint
from trtc.errors import CheckpointError


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_bytes(
    entries: bytes = b"", tensors: bytes = b"", *, counts: tuple[int, int] = (0, 0), version: int = 3, data: bytes = b""
) -> bytes:
    """A file by hand; ``counts`` are those of tensors and metadata entries."""
    header = b"GGUF" + struct.pack("<IQQ", version, *counts) + entries + tensors
    return header + b"\0" * (-len(header) % 32) + data


def record(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_gguf(tiny_model("qwen2"), tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_header_is_read_as_the_gguf_package_reads_it(tiny: Path) -> None:
    ours, theirs = read_gguf(tiny), gguf.GGUFReader(tiny)
    expected = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata.keys() == expected.keys()
    for name, value in ours.metadata.items():
        assert value == pytest.approx(expected[name], rel=1e-7) if isinstance(value, float) else value == expected[name]
    assert [(t.name, t.ggml_type, t.offset, t.bytes) for t in ours.tensors] == [
        (t.name, t.tensor_type.name, t.data_offset, t.n_bytes) for t in theirs.tensors
    ]
    assert [t.shape for t in ours.tensors] == [tuple(int(n) for n in t.shape[::-1]) for t in theirs.tensors]


def test_float32_settings_keep_their_short_decimal_form(tiny: Path) -> None:
    assert read_gguf(tiny).metadata["qwen2.attention.layer_norm_rms_epsilon"] == 1e-6


HUGE = 2**62
DAMAGED: dict[str, tuple[bytes, str]] = {
    "other magic": (b"GGML" + b"\0" * 60, "does not begin with GGUF"),
    "version 1": (gguf_bytes(version=1), "is a version 1 GGUF file, expected little-endian version 2 or 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian GGUF file"),
    "entry count": (gguf_bytes(counts=(0, HUGE)), "the header asks for"),
    "tensor count": (gguf_bytes(counts=(HUGE, 0)), "the header asks for"),
    "string length": (gguf_bytes(struct.pack("<Q", HUGE) + b"x", counts=(0, 1)), "the header asks for"),
    "array of strings": (
        gguf_bytes(string("k") + struct.pack("<IIQ", 9, 8, HUGE), counts=(0, 1)),
        "the header asks for",
    ),
    "array of numbers": (
        gguf_bytes(string("k") + struct.pack("<IIQ", 9, 4, HUGE), counts=(0, 1)),
        "the header asks for",
    ),
    "array of arrays": (
        gguf_bytes(string("k") + struct.pack("<IIQ", 9, 9, 1), counts=(0, 1)),
        "array of unsupported type 9",
    ),
    "value type": (gguf_bytes(string("k") + struct.pack("<I", 99), counts=(0, 1)), "key k has unknown type 99"),
    "key twice": (gguf_bytes((string("k") + struct.pack("<IB", 0, 1)) * 2, counts=(0, 2)), "key k is given twice"),
    "not UTF-8": (gguf_bytes(struct.pack("<Q", 1) + b"\xff" + b"\0" * 12, counts=(0, 1)), "is not UTF-8"),
    "alignment": (
        gguf_bytes(string("general.alignment") + struct.pack("<II", 4, 3), counts=(0, 1)),
        "general.alignment is 3, expected a power of two",
    ),
    "no dimensions": (gguf_bytes(tensors=record("w", []), counts=(1, 0)), "tensor 'w' has 0 dimensions"),
    "many dimensions": (gguf_bytes(tensors=record("w", [1] * 5), counts=(1, 0)), "has 5 dimensions, expected 1 to 4"),
    "huge dimensions": (gguf_bytes(tensors=record("w", [HUGE] * 4), counts=(1, 0)), r"tensor w .* ends at byte"),
    "data cut": (gguf_bytes(tensors=record("w", [8]), counts=(1, 0), data=b"\0" * 31), "the download is incomplete"),
    "offset far": (gguf_bytes(tensors=record("w", [8], offset=HUGE), counts=(1, 0), data=b"\0" * 32), "ends at byte"),
    "ggml type": (gguf_bytes(tensors=record("w", [8], kind=77), counts=(1, 0)), "tensor w has unknown ggml type 77"),
    "broken block": (gguf_bytes(tensors=record("w", [33], kind=8), counts=(1, 0)), "does not divide into Q8_0 blocks"),
    "overlap": (
        gguf_bytes(tensors=record("a", [8]) + record("b", [8], offset=16), counts=(2, 0), data=b"\0" * 64),
        "tensors a and b overlap",
    ),
    "name twice": (
        gguf_bytes(tensors=record("a", [8]) + record("a", [8], offset=32), counts=(2, 0), data=b"\0" * 64),
        "two tensors have the same name",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_header_is_a_checkpoint_error(case: str, tmp_path: Path) -> None:
    content, message = DAMAGED[case]
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_gguf(tmp_path / "bad.gguf")


def test_truncation_anywhere_is_a_checkpoint_error(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    header = read_gguf(tiny).header_bytes
    for length in [*range(0, header, 97), header, header + 40, len(whole) - 33]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path / "cut.gguf")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_header_bytes_never_raise_another_kind_of_error(tiny: Path, tmp_path: Path, data: Any) -> None:
    whole = bytearray(tiny.read_bytes())
    header = read_gguf(tiny).header_bytes
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(whole)
    try:
        checkpoint = open_checkpoint(path)
        for handle in checkpoint.tensors.values():
            with np.errstate(all="ignore"):
                handle.read()
        (tmp_path / "tokenizer").mkdir(exist_ok=True)
        checkpoint.write_tokenizer(tmp_path / "tokenizer")
    except CheckpointError:
        pass
