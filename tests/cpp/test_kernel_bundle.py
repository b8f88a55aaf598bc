"""plugins/kernel_bundle.cc: what it reads, and that hostile bytes are refused without a read beyond their end."""

from __future__ import annotations

import random
import struct

import pytest

from tests.cpp.kernel_bundles import MAGIC, Kernel, attention_kernels, bundle_bytes, empty_cubin, text
from trtc import _test_tensorrt
from trtc.errors import EngineError

parse = _test_tensorrt.parse_bundle


def test_every_number_of_every_kernel_is_read():
    kernels = (
        Kernel("rotary_kv_write", {"A": -1, "B": 2**40}, 2, 3, 4, 5, empty_cubin(100), "an_entry"),
        Kernel("combine_splits", {}),
    )
    read = parse(bundle_bytes(*kernels))
    assert read == [
        {
            "role": kernel.role,
            "entry": kernel.entry or kernel.role,
            "num_warps": kernel.num_warps,
            "shared_bytes": kernel.shared_bytes,
            "registers": kernel.registers,
            "spill_bytes": kernel.spill_bytes,
            "constants": kernel.constants,
            "cubin": kernel.cubin,
        }
        for kernel in kernels
    ]


def test_a_bundle_without_kernels_is_one():
    assert parse(MAGIC + bytes(4)) == []


def test_every_cut_is_refused():
    whole = bundle_bytes(*attention_kernels())
    for size in range(len(whole)):
        with pytest.raises(EngineError, match=r"kernel bundle .*; build the engine again"):
            parse(whole[:size])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"TRTCKRN2" + bytes(4), "does not begin with TRTCKRN1"),
        (bundle_bytes(*attention_kernels()) + b"\0", "has 1 bytes too many"),
        (MAGIC + b"\xff\xff\xff\xff", "is cut short"),
        (bundle_bytes(Kernel("a", {}), Kernel("a", {})), "has the kernel a twice"),
        (bundle_bytes(Kernel("a\0b", {})), "name that is empty or not printable ASCII"),
        (bundle_bytes(Kernel("\xe9", {})), "name that is empty or not printable ASCII"),
        (bundle_bytes(Kernel("", {}, entry="e")), "name that is empty or not printable ASCII"),
        (bundle_bytes(Kernel("a", {}, num_warps=0)), "needs 0 warps"),
        (bundle_bytes(Kernel("a", {}, num_warps=33)), "needs 33 warps"),
        (bundle_bytes(Kernel("a", {}, shared_bytes=2**31)), "2147483648 bytes of shared memory, which no GPU has"),
        (bundle_bytes(Kernel("a", {}, cubin=b"")), "a cubin of kernel a that is no ELF file"),
        (bundle_bytes(Kernel("a", {}, cubin=b"\x7fELF\x02\x01")), "a cubin of kernel a that is no ELF file"),
        (MAGIC + b"\1\0\0\0" + text("a") * 2 + bytes(4) + b"\1" + bytes(12), "warps"),
    ],
)
def test_what_is_no_bundle_is_refused(data, problem):
    with pytest.raises(EngineError, match=problem):
        parse(data)


def test_a_length_beyond_64_bits_of_arithmetic_is_refused():
    kernel = Kernel("a", {}, cubin=b"").to_bytes()
    data = MAGIC + b"\1\0\0\0" + kernel[:-8] + struct.pack("<Q", 2**64 - 1)
    with pytest.raises(EngineError, match="is cut short"):
        parse(data)


@pytest.mark.parametrize("offset", [64 + 24 + 64 - 23, 2**64 - 1, 2**63])
def test_a_cubin_whose_section_reaches_beyond_its_end_is_refused(offset):
    with pytest.raises(EngineError, match="a cubin of kernel a that is cut short"):
        parse(bundle_bytes(Kernel("a", {}, cubin=empty_cubin(section_offset=offset))))


def test_a_cut_cubin_is_refused():
    cubin = empty_cubin()
    for size in range(len(cubin)):
        with pytest.raises(EngineError, match="cubin of kernel a that"):
            parse(bundle_bytes(Kernel("a", {}, cubin=cubin[:size])))


def test_damaged_bytes_are_read_or_refused_but_never_crash():
    whole = bundle_bytes(*attention_kernels())
    rng = random.Random(5)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            parse(bytes(damaged))
        except EngineError:
            refused += 1
    assert refused > 500
