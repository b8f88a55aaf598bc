"""Kernel bundles and plugin fields made by hand, with cubins that are ELF files of nothing."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

MAGIC = b"TRTCKRN1"
HEADS = {"NUM_HEADS": 8, "HEAD_DIM": 64, "HEAD_PAD": 64}
CACHE = {"NUM_KV_HEADS": 2, "BLOCK_SIZE": 16}


def empty_cubin(section_bytes: int = 24, section_offset: int | None = None) -> bytes:
    """An ELF-64 file of one section with ``section_bytes`` bytes."""
    offset = 64 if section_offset is None else section_offset
    section_table = 64 + section_bytes
    header = b"\x7fELF\x02\x01" + bytes(10)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, section_table, 0, 64, 56, 0, 64, 1, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, offset, section_bytes, 0, 0, 1, 0)
    return header + bytes(section_bytes) + section


@dataclass
class Kernel:
    role: str
    constants: dict[str, int]
    num_warps: int = 4
    shared_bytes: int = 1024
    registers: int = 96
    spill_bytes: int = 0
    cubin: bytes = field(default_factory=empty_cubin)
    entry: str = ""  # the role unless given

    def to_bytes(self) -> bytes:
        numbers = (self.num_warps, self.shared_bytes, self.registers, self.spill_bytes, len(self.constants))
        constants = b"".join(text(key) + struct.pack("<q", value) for key, value in self.constants.items())
        head = text(self.role) + text(self.entry or self.role) + struct.pack("<IIIIH", *numbers) + constants
        return head + struct.pack("<Q", len(self.cubin)) + self.cubin


def text(name: str) -> bytes:
    return struct.pack("<H", len(name)) + name.encode("latin-1")


def bundle_bytes(*kernels: Kernel) -> bytes:
    return MAGIC + struct.pack("<I", len(kernels)) + b"".join(kernel.to_bytes() for kernel in kernels)


def attention_kernels() -> tuple[Kernel, Kernel, Kernel]:
    """Of 8 query and 2 KV heads of 64 channels, 32 of them rotated, in blocks of 16; a split is 64 positions."""
    context = {"WINDOW": 0, "SPLIT": 64}
    return (
        Kernel("rotary_kv_write", {**HEADS, **CACHE, "ROTARY_DIM": 32, "HEADS_PER_PROGRAM": 4, "QUERY_PROGRAMS": 2}),
        Kernel(
            "paged_attention",
            {**HEADS, **CACHE, **context, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_TOKENS": 16, "VALUE_PARTS": 2},
            num_warps=8,
            shared_bytes=70_000,
        ),
        Kernel("combine_splits", {**HEADS, **context, "HEADS_PER_PROGRAM": 3}),
    )


def plugin_fields(**changed: Any) -> dict[str, Any]:
    """Fields of the same shape, in their order."""
    fields = {
        "layer": 3,
        "num_heads": 8,
        "num_kv_heads": 2,
        "head_dim": 64,
        "rotary_dim": 32,
        "window": 0,
        "block_size": 16,
        "compute_dtype": 1,
        "cache_dtype": 0,
        "sm": 89,
        "workspace_rows": 20,
        "scale": 0.125,
        "softcap": 0.0,
        "kernels": bundle_bytes(*attention_kernels()),
    }
    return {**fields, **changed}
