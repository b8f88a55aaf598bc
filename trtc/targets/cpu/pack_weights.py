"""Weights into the engine file, one at a time: read rows, pack them in C++, hash, write."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from trtc.engine.format import WeightFormat, align
from trtc.engine.plan import WeightEntry
from trtc.targets.cpu.weight_spec import WeightSpec

Bytes = npt.NDArray[np.uint8]

_PANEL_COLS = 16  # kPanelCols of cpp/src/kernels/linear.h
_CHUNK_BYTES = 32 << 20  # of float32 source rows
_FORMAT_NAMES = {
    WeightFormat.PACKED_F32: "f32",
    WeightFormat.PACKED_BF16: "bf16",
    WeightFormat.PACKED_I8: "i8",
    WeightFormat.PACKED_I4: "i4",
}


class _Part(NamedTuple):
    """A section of a packed blob, panel after panel."""

    offset: int
    panel_bytes: int


def layout_weights(specs: Sequence[WeightSpec], first_offset: int) -> list[WeightEntry]:
    """Where each weight will lie, in order, 64-byte aligned; hashes are still empty."""
    entries = []
    offset = first_offset
    for spec in specs:
        size = _blob_bytes(spec)
        entries.append(WeightEntry(spec.name, spec.format, spec.group, spec.n, spec.k, offset, size))
        offset = align(offset + size)
    return entries


def write_weights(
    descriptor: int,
    specs: Sequence[WeightSpec],
    entries: Sequence[WeightEntry],
    progress: Callable[[str, int, int], None] | None = None,
) -> list[WeightEntry]:
    """Write every blob at its offset of the open file and return the entries with their hashes.

    Holds one packed weight and one chunk of source rows at a time. Raises CheckpointError when a source tensor is
    not finite and OSError when the file cannot take the bytes.
    """
    buffer = np.empty(max((entry.size for entry in entries), default=0), np.uint8)
    finished = []
    for done, (spec, entry) in enumerate(zip(specs, entries, strict=True)):
        blob = buffer[: entry.size]
        _fill(spec, blob)
        _write_all(descriptor, blob.data, entry.offset)
        finished.append(replace(entry, sha256=hashlib.sha256(blob.data).digest()))
        if progress is not None:
            progress(spec.name, done + 1, len(specs))
    return finished


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written


def _layout(spec: WeightSpec, n: int) -> dict[str, int]:
    from trtc import _core

    layout: dict[str, int] = _core.packed_layout(_FORMAT_NAMES[spec.format], n, spec.k, spec.group)
    return layout


def _blob_bytes(spec: WeightSpec) -> int:
    return 4 * spec.n * spec.k if spec.format is WeightFormat.ROWS_F32 else _layout(spec, spec.n)["total_bytes"]


def _fill(spec: WeightSpec, blob: Bytes) -> None:
    if spec.format is WeightFormat.ROWS_F32:
        assert spec.read_floats is not None
        rows = np.asarray(spec.read_floats(0, spec.n), np.float32)
        blob[:] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        return
    chunks = list(_chunks(spec))
    if len(chunks) == 1:
        _pack(spec, 0, spec.n, blob)
        return
    blob[:] = 0
    parts = _parts(spec, spec.n)
    for start, stop in chunks:
        scratch = np.zeros(_layout(spec, stop - start)["total_bytes"], np.uint8)
        _pack(spec, start, stop, scratch)
        panels = -(-(stop - start) // _PANEL_COLS)
        for whole, chunk in zip(parts, _parts(spec, stop - start), strict=True):
            begin = whole.offset + start // _PANEL_COLS * whole.panel_bytes
            size = panels * whole.panel_bytes
            blob[begin : begin + size] = scratch[chunk.offset : chunk.offset + size]


def _chunks(spec: WeightSpec) -> Iterator[tuple[int, int]]:
    """Runs of whole panels, about _CHUNK_BYTES of float32 each."""
    step = max(1, _CHUNK_BYTES // (4 * spec.k * _PANEL_COLS)) * _PANEL_COLS
    for start in range(0, spec.n, step):
        yield start, min(start + step, spec.n)


def _parts(spec: WeightSpec, n: int) -> list[_Part]:
    """Data, scales, column sums and zeros of a packed blob; see cpp/src/kernels/linear.h."""
    layout = _layout(spec, n)
    half_bytes = {"f32": 8, "bf16": 4, "i8": 2, "i4": 1}[_FORMAT_NAMES[spec.format]]
    parts = [_Part(layout["data_offset"], layout["k_padded"] * _PANEL_COLS * half_bytes // 2)]
    if spec.read_quantized is not None:
        parts.append(_Part(layout["scales_offset"], layout["groups"] * _PANEL_COLS * 2))
    if spec.format is WeightFormat.PACKED_I8:
        parts.append(_Part(layout["sums_offset"], layout["groups"] * _PANEL_COLS * 4))
    if spec.format is WeightFormat.PACKED_I4:
        parts.append(_Part(layout["zeros_offset"], layout["groups"] * _PANEL_COLS * 2))
    return parts


def _pack(spec: WeightSpec, start: int, stop: int, out: Bytes) -> None:
    from trtc import _core

    if spec.read_quantized is not None:
        q, scale, zero = spec.read_quantized(start, stop)
        scale_bits = np.ascontiguousarray(scale).view(np.uint16)
        if zero is None:
            _core.pack_i8(q, scale_bits, spec.group, out)
        else:
            _core.pack_i4(q, scale_bits, np.ascontiguousarray(zero).view(np.uint16), spec.group, out)
        return
    assert spec.read_floats is not None
    rows: npt.NDArray[Any] = spec.read_floats(start, stop)
    if spec.format is WeightFormat.PACKED_F32:
        _core.pack_f32(np.ascontiguousarray(rows, np.float32), out)
    else:
        _core.pack_bf16(np.ascontiguousarray(rows).astype(ml_dtypes.bfloat16, copy=False).view(np.uint16), out)
