"""What a compiled CUDA kernel needs of the machine, read from its ELF file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Attributes of the section .nv.info.<kernel>, and of .nv.info, which holds (symbol, value) pairs; as cuobjdump -elf
# names them: EIATTR_FRAME_SIZE, EIATTR_CBANK_PARAM_SIZE, EIATTR_REGCOUNT.
FRAME_SIZE, PARAM_SIZE, REGCOUNT = 0x11, 0x19, 0x2F
SIZED = 0x04  # EIFMT_SVAL: a payload of the stated size follows; other formats have their value in those 16 bits


@dataclass(frozen=True)
class KernelResources:
    """Of one thread, in registers and bytes. A kernel without local arrays has a stack frame only for spilled
    registers."""

    registers: int
    spill_bytes: int
    parameter_bytes: int


def kernel_resources(cubin: bytes) -> KernelResources:
    """Resources of the only kernel of a cubin. Raises ValueError when it is no ELF file of that kind."""
    try:
        found = dict(_attributes(cubin))
        return KernelResources(found[REGCOUNT], found[FRAME_SIZE], found[PARAM_SIZE])
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(f"not a cubin with one kernel: {error!r}") from error


def _attributes(cubin: bytes) -> Iterator[tuple[int, int]]:
    """(attribute, value) of every entry whose value is one number."""
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    for name, data in _sections(cubin):
        if not name.startswith(".nv.info"):
            continue
        at = 0
        while at < len(data):
            kind, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if kind != SIZED:
                yield attribute, size
                continue
            if size == 8:
                yield attribute, struct.unpack_from("<I", data, at + 4)[0]
            at += size


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * entry_size) for index in range(count)]
    names_at = headers[names_index][4]
    for name_at, kind, _, _, at, size in headers:
        start = names_at + name_at
        name = elf[start : elf.index(b"\0", start)].decode()
        yield name, b"" if kind == 8 else elf[at : at + size]  # 8: SHT_NOBITS occupies no file space
