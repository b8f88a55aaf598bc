"""The C++ loader and the Python reader on truncated, flipped and hostile rank files: a typed error, never a crash."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from trtc.engine import format as fmt
from trtc.engine.format import SectionKind
from trtc.engine.plan import read_plan
from trtc.errors import EngineError

ROOT = Path(__file__).resolve().parents[3]


def load(engine: Path):
    from trtc import _core

    return _core.CpuModel(str(engine), 1)


def header_of(data: bytes) -> dict:
    return fmt.HEADER.unpack(data)


def cuts(data: bytes) -> list[int]:
    """Sizes to truncate to: around the header, around every section, in the weights."""
    header = header_of(data)
    edges = [0, fmt.HEADER.size, header["plan_bytes"], len(data)]
    for section in header["sections"]:
        edges += [section["offset"], section["offset"] + section["count"] * section["record_bytes"]]
    return sorted({edge + shift for edge in edges for shift in (-1, 0, 1) if 0 <= edge + shift < len(data)})


def test_truncation_at_every_section_is_a_typed_error(engine):
    path = engine / "rank0.engine"
    data = path.read_bytes()
    for size in cuts(data):
        path.write_bytes(data[:size])
        for reader in (lambda: load(engine), lambda: read_plan(path)):
            with pytest.raises(EngineError, match=r"rank0\.engine"):
                reader()


def test_one_flipped_bit_anywhere_in_header_and_records_is_a_typed_error(engine):
    path = engine / "rank0.engine"
    data = bytearray(path.read_bytes())
    for offset in range(header_of(data)["plan_bytes"]):
        data[offset] ^= 1 << offset % 8
        path.write_bytes(data)
        for reader in (lambda: load(engine), lambda: read_plan(path)):
            with pytest.raises(EngineError, match=r"rank0\.engine"):
                reader()
        data[offset] ^= 1 << offset % 8


def with_valid_checksum(data: bytearray) -> bytearray:
    """What a hostile writer would do: damage, then a checksum that fits."""
    data[12:16] = bytes(4)
    plan_bytes = min(header_of(data)["plan_bytes"], len(data))
    data[12:16] = zlib.crc32(data[:plan_bytes]).to_bytes(4, "little")
    return data


HOSTILE = """
import sys
from pathlib import Path
from tests.python.engine.test_damaged_engines import try_hostile_files
print(try_hostile_files(Path(sys.argv[1])))
"""


def try_hostile_files(engine: Path) -> int:
    """Flip every byte of header and records, fix the checksum, load and, if that works, run. Returns how many ran."""
    from tests.python.targets.graphs import step_inputs
    from trtc.errors import TrtcError

    path = engine / "rank0.engine"
    original = path.read_bytes()
    inputs = step_inputs()
    ran = 0
    for offset in range(16, header_of(original)["plan_bytes"]):
        data = bytearray(original)
        data[offset] ^= (0x01, 0x80, 0xFF)[offset % 3]
        path.write_bytes(with_valid_checksum(data))
        with contextlib.suppress(EngineError):
            read_plan(path)
        with contextlib.suppress(TrtcError):
            model = load(engine)
            model.allocate_kv_cache(4)
            model.run(**inputs)
            ran += 1
    return ran


def test_hostile_files_with_a_fitting_checksum_never_crash(engine):
    result = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(engine)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stderr[-2000:]}"
    assert int(result.stdout) > 0, "no damage was harmless: the test no longer reaches the kernels"


def test_missing_rank_file_is_a_typed_error(engine):
    (engine / "rank0.engine").unlink()
    with pytest.raises(EngineError, match="cannot be opened: No such file"):
        load(engine)


def test_rank_file_that_is_a_directory_is_a_typed_error(engine):
    (engine / "rank0.engine").unlink()
    (engine / "rank0.engine").mkdir()
    with pytest.raises(EngineError, match="not a file"):
        load(engine)


def test_flipped_weights_load_because_loading_reads_none(engine):
    path = engine / "rank0.engine"
    data = bytearray(path.read_bytes())
    start = header_of(data)["sections"][SectionKind.WEIGHT_DATA]["offset"]
    data[start] ^= 0x40
    path.write_bytes(data)
    load(engine)
