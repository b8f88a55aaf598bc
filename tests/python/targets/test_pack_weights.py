"""Packing by chunks of rows gives the bytes of packing at once, and holds little more than one weight."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from trtc import _core
from trtc.engine.format import ALIGNMENT, WeightFormat
from trtc.errors import CheckpointError
from trtc.quantize.groupwise import QuantizedRows
from trtc.targets.cpu import pack_weights
from trtc.targets.cpu.pack_weights import layout_weights, write_weights
from trtc.targets.cpu.weight_spec import WeightSpec

N, K = 83, 70  # neither whole panels nor whole groups


def floats(n=N, k=K, dtype=np.float32):
    return np.random.default_rng(n + k).standard_normal((n, k), np.float32).astype(dtype)


def spec(format, values, group=0):
    name = format.name
    if group:
        bits = 8 if format is WeightFormat.PACKED_I8 else 4

        def read(start, stop):
            q, scale, *zero = _core.quantize_groupwise(np.ascontiguousarray(values[start:stop]), bits, group)
            return QuantizedRows(q, scale.view(np.float16), zero[0].view(np.float16) if zero else None)

        return WeightSpec(name, format, *values.shape, group, read_quantized=read)
    return WeightSpec(name, format, *values.shape, read_floats=lambda start, stop: values[start:stop])


SPECS = {
    "float32": spec(WeightFormat.PACKED_F32, floats()),
    "bfloat16": spec(WeightFormat.PACKED_BF16, floats()),
    "bfloat16 from bfloat16": spec(WeightFormat.PACKED_BF16, floats(dtype=ml_dtypes.bfloat16)),
    "int8": spec(WeightFormat.PACKED_I8, floats(), 32),
    "int4": spec(WeightFormat.PACKED_I4, floats(), 64),
    "rows": spec(WeightFormat.ROWS_F32, floats()),
    "float32 from bfloat16": spec(WeightFormat.PACKED_F32, floats(dtype=ml_dtypes.bfloat16)),
}


def written(specs, path):
    """Entries of the written weights and the file's bytes."""
    entries = layout_weights(specs, 128)
    with path.open("wb") as file:
        finished = write_weights(file.fileno(), specs, entries)
    return finished, path.read_bytes()


@pytest.mark.parametrize("each", SPECS.values(), ids=SPECS)
def test_chunks_of_rows_give_the_same_bytes(each, tmp_path, monkeypatch):
    whole, _ = written([each], tmp_path / "whole")
    monkeypatch.setattr(pack_weights, "_CHUNK_BYTES", 4 * K * 32)
    chunked, _ = written([each], tmp_path / "chunked")
    assert chunked == whole


def test_a_chunk_is_what_is_read_at_a_time(tmp_path, monkeypatch):
    reads = []
    values = floats()

    def read(start, stop):
        reads.append((start, stop))
        return values[start:stop]

    monkeypatch.setattr(pack_weights, "_CHUNK_BYTES", 4 * K * 32)
    written([replace(SPECS["float32"], read_floats=read)], tmp_path / "file")
    assert reads == [(0, 32), (32, 64), (64, 83)]


def test_blobs_are_aligned_apart_and_hashed(tmp_path):
    specs = [replace(each, name=name) for name, each in SPECS.items()]
    entries, data = written(specs, tmp_path / "file")
    end = 128
    for entry in entries:
        assert entry.offset % ALIGNMENT == 0 and end <= entry.offset < end + ALIGNMENT
        end = entry.offset + entry.size
        assert hashlib.sha256(data[entry.offset : end]).digest() == entry.sha256
    assert end == len(data)


def test_plain_rows_are_stored_as_they_are(tmp_path):
    (entry,), data = written([SPECS["rows"]], tmp_path / "file")
    stored = np.frombuffer(data, np.float32, N * K, entry.offset).reshape(N, K)
    np.testing.assert_array_equal(stored, floats())


def test_progress_names_each_weight(tmp_path):
    seen = []
    specs = list(SPECS.values())[:2]
    with (tmp_path / "file").open("wb") as file:
        write_weights(file.fileno(), specs, layout_weights(specs, 0), lambda *what: seen.append(what))
    assert seen == [("PACKED_F32", 1, 2), ("PACKED_BF16", 2, 2)]


def test_error_of_a_source_tensor_passes_through(tmp_path):
    def read(start, stop):
        raise CheckpointError("tensor w holds NaN")

    with pytest.raises(CheckpointError, match="holds NaN"):
        written([replace(SPECS["float32"], read_floats=read)], tmp_path / "file")


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:1000], offset))
    entries, data = written([SPECS["float32"]], tmp_path / "file")
    assert hashlib.sha256(data[128:]).digest() == entries[0].sha256
