"""Attention kernels compiled without a GPU: their bytes, what they need of the machine, and what is refused."""

from __future__ import annotations

import json
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.kernels.shape import SPLIT, AttentionShape
from plugins.kernels.specs import parameter_type
from scripts.kernel_resources import TABLE, measure, shape_of
from trtc.errors import BuildError, EngineError
from trtc.targets.tensorrt import kernel_bundle
from trtc.targets.tensorrt.cubin import kernel_resources
from trtc.targets.tensorrt.kernel_bundle import KERNEL_SMS, KernelBundle, KernelImage, compile_bundle

SHAPE = shape_of(64, "plain")
MAX_SHARED_BYTES = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KiB a block may have, CUDA programming guide

FAKE = KernelBundle(
    (
        KernelImage("rotary_kv_write", "entry_a", 4, 16, 40, 0, {"HEAD_DIM": 64}, b"\x7fELF one"),
        KernelImage("paged_attention", "entry_b", 8, 57344, 255, 72, {"SPLIT": 512, "LOW": -(2**63)}, b"two"),
    )
)


@pytest.fixture(scope="module", autouse=True)
def no_compiler_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.delenv("TRITON_INTERPRET", raising=False)
        compile_bundle.cache_clear()
        yield


@pytest.fixture(scope="module")
def bundle() -> KernelBundle:
    pytest.importorskip("triton")
    return compile_bundle(SHAPE, 89)


def test_a_bundle_has_the_bytes_that_cpp_reads():
    expected = b"TRTCKRN1" + struct.pack("<I", 2)
    expected += struct.pack("<H", 15) + b"rotary_kv_write" + struct.pack("<H", 7) + b"entry_a"
    expected += struct.pack("<IIII", 4, 16, 40, 0) + struct.pack("<H", 1)
    expected += struct.pack("<H", 8) + b"HEAD_DIM" + struct.pack("<q", 64) + struct.pack("<Q", 8) + b"\x7fELF one"
    expected += struct.pack("<H", 15) + b"paged_attention" + struct.pack("<H", 7) + b"entry_b"
    expected += struct.pack("<IIII", 8, 57344, 255, 72) + struct.pack("<H", 2)
    expected += struct.pack("<H", 5) + b"SPLIT" + struct.pack("<q", 512)
    expected += struct.pack("<H", 3) + b"LOW" + struct.pack("<q", -(2**63)) + struct.pack("<Q", 3) + b"two"
    assert FAKE.to_bytes() == expected
    assert KernelBundle.from_bytes(expected) == FAKE


def test_bytes_that_are_no_bundle_are_refused():
    data = FAKE.to_bytes()
    for size in range(len(data)):
        with pytest.raises(EngineError, match="cut short"):
            KernelBundle.from_bytes(data[:size])
    with pytest.raises(EngineError, match="1 bytes too many"):
        KernelBundle.from_bytes(data + b"\0")
    with pytest.raises(EngineError, match="begins with b'TRTCKRN2'"):
        KernelBundle.from_bytes(b"TRTCKRN2" + data[8:])
    with pytest.raises(EngineError, match="not ASCII"):
        KernelBundle.from_bytes(data.replace(b"entry_a", b"entry_\xff"))


def test_a_compiled_bundle_holds_three_kernels_and_their_constants(bundle: KernelBundle):
    assert [kernel.role for kernel in bundle.kernels] == ["rotary_kv_write", "paged_attention", "combine_splits"]
    assert KernelBundle.from_bytes(bundle.to_bytes()) == bundle
    attention = bundle.kernels[1]
    assert attention.constants["SPLIT"] == SPLIT and attention.constants["SPLIT"] % attention.constants["BLOCK_N"] == 0
    assert attention.constants["BLOCK_TOKENS"] * 4 <= attention.constants["BLOCK_M"]
    for kernel in bundle.kernels:
        assert kernel.entry.encode() in kernel.cubin
        assert kernel.num_warps == 4 and kernel.spill_bytes == 0


def test_a_cubin_takes_the_parameters_of_its_source_and_two_scratch_pointers(bundle: KernelBundle):
    for kernel, spec in zip(bundle.kernels, kernel_bundle.kernel_specs(SHAPE), strict=True):
        size = 0
        for name in [n for n in spec.function().arg_names if n not in spec.constants] + ["scratch"] * 2:
            width = 8 if name == "scratch" or parameter_type(name, SHAPE).startswith("*") else 4
            size = -(-size // width) * width + width
        assert kernel_resources(kernel.cubin).parameter_bytes == size, kernel.role


def test_resources_are_those_that_cuobjdump_prints(bundle: KernelBundle, tmp_path: Path):
    from triton import knobs

    for kernel in bundle.kernels:
        (tmp_path / "cubin").write_bytes(kernel.cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(tmp_path / "cubin")]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"REG:{kernel.registers} STACK:{kernel.spill_bytes} " in printed


def test_a_bundle_names_no_folder_of_this_machine(bundle: KernelBundle):
    data = bundle.to_bytes()
    assert b"plugins" not in data and b".py" not in data


@pytest.mark.parametrize("damaged", [b"", b"\x7fELF", b"\x7fELF\x02" + bytes(100), b"no elf file"])
def test_what_is_no_cubin_is_told_apart(damaged: bytes):
    with pytest.raises(ValueError, match="not a"):
        kernel_resources(damaged)


TABLE_CONTENT = json.loads(TABLE.read_text())
ROWS = TABLE_CONTENT["rows"]


def test_the_table_covers_every_architecture_within_its_limits():
    assert {row["sm"] for row in ROWS} == set(KERNEL_SMS)
    for row in ROWS:
        for role, kernel in row["kernels"].items():
            assert kernel["shared_bytes"] <= MAX_SHARED_BYTES[row["sm"]] * 1024, (row, role)
            # What does not fit is the state of the splits so far, moved once for each SPLIT positions.
            assert kernel["loop_spills"] == 0, (row, role)
            assert kernel["spill_bytes"] <= (288 if role == "paged_attention" else 0), (row, role)


@pytest.mark.parametrize(
    "sm, head_dim, variant, spills",
    [(80, 128, "plain", False), (90, 128, "float8 cache", False), (120, 128, "plain", True)],
)
def test_kernels_need_no_more_than_the_table_says(sm: int, head_dim: int, variant: str, spills: bool):
    triton = pytest.importorskip("triton")
    if triton.__version__ != TABLE_CONTENT["triton"]:
        pytest.skip(f"the table was made with triton {TABLE_CONTENT['triton']}, this is {triton.__version__}")
    (recorded,) = [row for row in ROWS if (row["sm"], row["head_dim"], row["variant"]) == (sm, head_dim, variant)]
    for role, kernel in measure(sm, head_dim, variant)["kernels"].items():
        assert kernel["loop_spills"] == 0 and (spills or kernel["spill_bytes"] == 0), role
        for name in ("registers", "spill_bytes", "shared_bytes"):
            assert kernel[name] <= recorded["kernels"][role][name], (role, name)


@pytest.mark.parametrize(
    "change, sm, message",
    [
        ({}, 75, "no attention kernels for SM 75; they exist for SM 80, 86, 89, 90, 100 and 120"),
        ({"head_dim": 72}, 89, "no attention kernel for head size 72; they exist for 64, 80, 96, 128 and 256"),
        ({"block_size": 8}, 89, "no attention kernel for 8 tokens per KV block; use 16, 32, 64 and 128"),
        ({"num_heads": 9, "num_kv_heads": 1}, 89, "9 query heads over 1 KV heads"),
        ({"num_heads": 3, "num_kv_heads": 2}, 89, "3 query heads over 2 KV heads"),
        ({"rotary_dim": 66}, 89, "rotary size 66 must be even and at most the head size 64"),
        ({"compute_dtype": "float32"}, 89, "no attention kernel for float32; use float16 or bfloat16"),
        ({"cache_dtype": "int8"}, 89, "no attention kernel for a KV cache of int8; use auto or float8_e4m3"),
        ({"cache_dtype": "float8_e4m3"}, 86, "SM 86 has no float8 instructions"),
    ],
)
def test_what_no_kernel_covers_is_refused(change: dict[str, object], sm: int, message: str):
    with pytest.raises(BuildError, match=message):
        compile_bundle(replace(SHAPE, **change), sm)


def test_without_triton_the_sentence_names_the_pip_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(BuildError, match=r"pip install 'trtc\[tensorrt-rtx\]'"):
        compile_bundle(replace(SHAPE, window=3), 89)


def test_layers_of_one_shape_share_a_bundle(bundle: KernelBundle):
    assert compile_bundle(replace(SHAPE), 89) is bundle
    assert isinstance(SHAPE, AttentionShape)
