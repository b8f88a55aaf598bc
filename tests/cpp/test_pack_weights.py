"""The packed layout byte by byte against numpy, and what packing and quantizing refuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpp.guarded import ISAS
from tests.cpp.packed_weights import FORMATS, QUANTIZED, blob_for
from trtc import _core
from trtc.errors import BuildError

SHAPES = [(1, 1, 32), (16, 32, 32), (17, 33, 32), (40, 200, 64), (33, 129, 128)]


def integers(format: str, n: int, k: int, group: int) -> list[np.ndarray]:
    """q and scales, and zeros for i4."""
    rng = np.random.default_rng((n, k))
    low, high = (-128, 127) if format == "i8" else (0, 15)
    q = rng.integers(low, high, (n, k), dtype=np.int8, endpoint=True)
    halves = rng.integers(0, 0x7C00, (1 if format == "i8" else 2, n, -(-k // group)), dtype=np.uint16)
    return [q, *halves]


def pack(parts: list[np.ndarray], group: int, blob: np.ndarray, threads: int = 0) -> None:
    (_core.pack_i8 if len(parts) == 2 else _core.pack_i4)(*parts, group, blob, threads)


def padded(array: np.ndarray, rows: int, cols: int) -> np.ndarray:
    out = np.zeros((rows, cols), array.dtype)
    out[: array.shape[0], : array.shape[1]] = array
    return out


def section(blob: np.ndarray, start: int, values: np.ndarray) -> np.ndarray:
    return blob[start : start + values.nbytes].view(values.dtype).reshape(values.shape)


@pytest.mark.parametrize("n, k, group", SHAPES)
@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("threads", [1, 3])
def test_integers_scales_sums_and_zeros_lie_where_the_layout_says(
    format: str, n: int, k: int, group: int, threads: int
) -> None:
    q, scales, *zeros = integers(format, n, k, group)
    layout, blob = _core.packed_layout(format, n, k, group), blob_for(format, n, k, group)
    pack([q, scales, *zeros], group, blob, threads)
    panels, k_padded, groups = layout["panels"], layout["k_padded"], layout["groups"]
    wide = padded(q, 16 * panels, k_padded).reshape(panels, 16, k_padded)
    if format == "i8":
        data = wide.reshape(panels, 16, -1, 4).transpose(0, 2, 1, 3)
    else:
        octets = wide.astype(np.uint8).reshape(panels, 16, -1, 2, 4)
        data = (octets[:, :, :, 0] | octets[:, :, :, 1] << 4).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(section(blob, layout["data_offset"], data), data)
    for name, halves in zip(("scales_offset", "zeros_offset"), (scales, *zeros), strict=False):
        per_group = padded(halves, 16 * panels, groups).reshape(panels, 16, groups).transpose(0, 2, 1)
        np.testing.assert_array_equal(section(blob, layout[name], per_group), per_group)
    if format == "i8":
        sums = wide.reshape(panels, 16, groups, group).sum(axis=3, dtype=np.int32).transpose(0, 2, 1)
        np.testing.assert_array_equal(section(blob, layout["sums_offset"], sums), sums)


@pytest.mark.parametrize("n, k, group", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_floats_lie_where_the_layout_says(n: int, k: int, group: int, threads: int) -> None:
    w = np.random.default_rng(n).normal(size=(n, k)).astype(np.float32)
    halves = (w.view(np.uint32) >> 16).astype(np.uint16)
    for format, source, words in [("f32", w, 1), ("bf16", halves, 2)]:
        layout, blob = _core.packed_layout(format, n, k), blob_for(format, n, k, 0)
        (_core.pack_f32 if format == "f32" else _core.pack_bf16)(source, blob, threads)
        panels, k_padded = layout["panels"], layout["k_padded"]
        wide = padded(source, 16 * panels, k_padded)
        data = wide.reshape(panels, 16, -1, words).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(section(blob, 0, data), data)


@pytest.mark.parametrize("format", FORMATS)
def test_packing_the_same_weight_twice_gives_the_same_bytes(format: str) -> None:
    first, second = np.zeros_like(blob_for(format, 17, 33, 32)), blob_for(format, 17, 33, 32)
    for blob in (first, second):
        if format in QUANTIZED:
            pack(integers(format, 17, 33, 32), 32, blob)
        elif format == "f32":
            _core.pack_f32(np.ones((17, 33), np.float32), blob)
        else:
            _core.pack_bf16(np.ones((17, 33), np.uint16), blob)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("format", FORMATS)
def test_parts_are_aligned_and_do_not_overlap(format: str) -> None:
    layout = _core.packed_layout(format, 100, 1000, 64)
    offsets = [layout[name] for name in ("data_offset", "scales_offset", "sums_offset", "zeros_offset", "total_bytes")]
    assert offsets == sorted(offsets) and all(offset % 64 == 0 for offset in offsets)
    assert layout["scales_offset"] >= layout["panels"] * layout["panel_bytes"]


@pytest.mark.parametrize(
    "format, n, k, group, message",
    [
        ("i8", 0, 4, 32, "0 x 4"),
        ("i8", 4, -1, 32, "4 x -1"),
        ("f32", 2**31, 4, 0, "2147483648 x 4"),
        ("bf16", 2**30, 2**30, 0, "2\\^40"),
        ("i4", 4, 4, 48, "group size 48.*32, 64 or 128"),
        ("int8", 4, 4, 32, "'int8'.*f32, bf16, i8 or i4"),
    ],
)
def test_impossible_layouts_are_refused(format: str, n: int, k: int, group: int, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        _core.packed_layout(format, n, k, group)


def test_mismatched_arrays_are_refused() -> None:
    q, scales = integers("i8", 4, 64, 32)
    blob = blob_for("i8", 4, 64, 32)
    with pytest.raises(BuildError, match=r"scales is \[4, 1\], expected \[4, 2\]"):
        _core.pack_i8(q, scales[:, :1].copy(), 32, blob)
    with pytest.raises(BuildError, match=r"out has .* bytes"):
        _core.pack_i8(q, scales, 32, blob[:-1])
    with pytest.raises(BuildError, match="w has 1 dimensions"):
        _core.quantize_groupwise(np.ones(4, np.float32), 8, 32)
    with pytest.raises(TypeError):
        _core.quantize_groupwise(np.ones((4, 4)), 8, 32)  # float64 is not converted silently
    int4_blob = blob_for("i4", 4, 64, 32)
    for outside in (-1, 16):
        with pytest.raises(BuildError, match=r"outside \[0, 15\]"):
            _core.pack_i4(np.full((4, 64), outside, np.int8), scales, scales, 32, int4_blob)
    with pytest.raises(BuildError, match=r"zeros is \[3, 2\], expected \[4, 2\]"):
        _core.pack_i4(np.zeros((4, 64), np.int8), scales, scales[:3], 32, int4_blob)
    with pytest.raises(BuildError, match="4 or 8 bits, not 5"):
        _core.quantize_groupwise(np.ones((4, 4), np.float32), 5, 32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("isa", [name for name in ISAS if name != "avx512_bf16"])
def test_weights_without_a_float16_scale_are_refused_by_place(
    monkeypatch: pytest.MonkeyPatch, value: float, bits: int, isa: str
) -> None:
    monkeypatch.setenv("TRTC_CPU_ISA", isa)
    w = np.ones((5, 70), np.float32)
    w[3, 66] = value
    with pytest.raises(BuildError, match=r"weight \[3, 66\]"):
        _core.quantize_groupwise(w, bits, 32)


@pytest.mark.parametrize("bits", [4, 8])
def test_every_instruction_set_and_thread_count_rounds_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    w = np.random.default_rng(0).standard_cauchy((19, 203)).astype(np.float32)
    results = []
    for isa in ISAS:
        monkeypatch.setenv("TRTC_CPU_ISA", isa)
        results += [_core.quantize_groupwise(w, bits, 64, threads) for threads in (1, 3)]
    for result in results[1:]:
        for got, want in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


def dequantized(w: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    q, *halves = _core.quantize_groupwise(w, bits, 32)
    step, *zero = (np.repeat(half.view(np.float16).astype(np.float32), 32, axis=1)[:, : w.shape[1]] for half in halves)
    return (q - zero[0] if zero else q) * step, step


@pytest.mark.parametrize("magnitude", [1e-9, 1e-7, 1e-5, 1e-3, 1.0, 1e3, 1e6])
def test_int8_errs_by_at_most_half_a_step_at_any_magnitude(magnitude: float) -> None:
    w = (magnitude * np.random.default_rng(0).normal(size=(50, 100))).astype(np.float32)
    values, step = dequantized(w, 8)
    assert (np.abs(values - w) <= step * 0.5 * (1 + 1e-4)).all()  # the inverse rounds: 127.5 * 2^-23


def int4_min_max(blocks: np.ndarray) -> np.ndarray:
    """Plain asymmetric rounding of [..., group] between the smallest and the largest element."""
    low = np.minimum(blocks.min(axis=-1, keepdims=True), 0)
    step = (np.maximum(blocks.max(axis=-1, keepdims=True), 0) - low) / 15
    return np.clip(np.rint((blocks - low) / step), 0, 15) * step + low


def test_int4_search_is_better_than_plain_rounding_between_the_extremes() -> None:
    blocks = np.random.default_rng(1).standard_t(4, (200, 3, 32)).astype(np.float32)
    plain = ((int4_min_max(blocks) - blocks) ** 2).sum(axis=2)
    error = ((dequantized(blocks.reshape(200, 96), 4)[0].reshape(blocks.shape) - blocks) ** 2).sum(axis=2)
    assert (error <= plain * 1.02).all()  # scale and zero are rounded to float16
    assert error.sum() < 0.95 * plain.sum()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_weights_that_had_four_bits_keep_their_values(kind: str) -> None:
    """w = d * q + m of 32 neighbours as in GGUF; the extremes of q need not occur."""
    rng = np.random.default_rng(2)
    q = rng.integers(0, 16, (300, 4, 32))
    if kind == "Q4_K":  # least-squares scales: often only part of the range is used
        q = np.clip(q, *rng.integers([[0], [11]], [[5], [16]], (2, 300))[:, :, None, None])
    d = np.abs(rng.normal(0.01, 0.003, (300, 4, 1))).astype(np.float16).astype(np.float64)
    m = -8 * d if kind == "Q4_0" else -(d * rng.uniform(4, 11, d.shape)).astype(np.float16)
    w = (d * q + m).reshape(300, 128).astype(np.float32)
    error = np.abs(dequantized(w, 4)[0] - w).reshape(300, 4, 32)
    straddles = ((w.reshape(300, 4, 32) >= 0).any(axis=2) & (w.reshape(300, 4, 32) <= 0).any(axis=2))[:, :, None]
    assert straddles.mean() > 0.95
    assert (error <= 0.02 * d + 1e-9)[np.broadcast_to(straddles, error.shape)].all()


def test_groups_of_zeros_have_scale_zero() -> None:
    for bits in (4, 8):
        assert not any(part.any() for part in _core.quantize_groupwise(np.zeros((3, 40), np.float32), bits, 32))
