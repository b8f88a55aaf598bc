"""The attention kernels of one layer shape, compiled for one GPU architecture on a machine that needs none.

A bundle's bytes lie in the engine, in the plugin's field ``kernels``. Little-endian: magic "TRTCKRN1", u32 kernel
count; for each kernel u16 length and name, u16 length and entry symbol, u32 warps, u32 dynamic shared bytes, u32
registers, u32 spill bytes, u16 count of constants, for each u16 length and key and i64 value, u64 length and cubin.

A kernel is launched with its parameters in the order of its source, then two null pointers (scratch that these
kernels do not use), in blocks of 32 x warps threads; ``plugins/kernels/launch.py`` says on which grid.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from plugins.kernels.shape import BLOCK_SIZES, HEAD_DIMS, MAX_GROUP, AttentionShape
from plugins.kernels.specs import KernelSpec, kernel_specs, parameter_type
from trtc.errors import BuildError, EngineError
from trtc.targets.tensorrt.cubin import kernel_resources

MAGIC = b"TRTCKRN1"
KERNEL_SMS = (80, 86, 89, 90, 100, 120)
FIRST_FP8_SM = 89


@dataclass(frozen=True)
class KernelImage:
    """One compiled kernel and what launching it takes. Sizes in bytes, of a block (shared) or a thread (spill)."""

    role: str
    entry: str
    num_warps: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    constants: dict[str, int]
    cubin: bytes

    def to_bytes(self) -> bytes:
        numbers = (self.num_warps, self.shared_bytes, self.registers, self.spill_bytes, len(self.constants))
        constants = b"".join(_text(key) + struct.pack("<q", value) for key, value in self.constants.items())
        head = _text(self.role) + _text(self.entry) + struct.pack("<IIIIH", *numbers) + constants
        return head + struct.pack("<Q", len(self.cubin)) + self.cubin


@dataclass(frozen=True)
class KernelBundle:
    """Every kernel of one attention shape, in launch order."""

    kernels: tuple[KernelImage, ...]

    def to_bytes(self) -> bytes:
        return MAGIC + struct.pack("<I", len(self.kernels)) + b"".join(kernel.to_bytes() for kernel in self.kernels)

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelBundle:
        """Raises EngineError for bytes that are no bundle."""
        cursor = _Cursor(data)
        if cursor.take(len(MAGIC)) != MAGIC:
            raise EngineError(f"a kernel bundle begins with {data[:8]!r}, expected {MAGIC!r}; build the engine again")
        (count,) = cursor.unpack("<I")
        kernels = tuple(cursor.kernel() for _ in range(count))
        if cursor.at != len(data):
            raise EngineError(f"a kernel bundle has {len(data) - cursor.at} bytes too many; build the engine again")
        return cls(kernels)


class _Cursor:
    """A place in a bundle's bytes that never passes their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise EngineError(f"a kernel bundle of {len(self.data)} bytes is cut short; build the engine again")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def text(self) -> str:
        (size,) = self.unpack("<H")
        try:
            return self.take(size).decode("ascii")
        except UnicodeDecodeError as error:
            raise EngineError("a kernel bundle has a name that is not ASCII; build the engine again") from error

    def kernel(self) -> KernelImage:
        role, entry = self.text(), self.text()
        num_warps, shared_bytes, registers, spill_bytes, count = self.unpack("<IIIIH")
        constants = {self.text(): self.unpack("<q")[0] for _ in range(count)}
        (size,) = self.unpack("<Q")
        return KernelImage(role, entry, num_warps, shared_bytes, registers, spill_bytes, constants, self.take(size))


def _text(name: str) -> bytes:
    encoded = name.encode("ascii")
    return struct.pack("<H", len(encoded)) + encoded


def check_kernels_exist(shape: AttentionShape, sm: int) -> None:
    """Raises BuildError, naming what would work, for a shape or architecture that the kernels do not cover."""
    group, remainder = divmod(shape.num_heads, shape.num_kv_heads)
    if sm not in KERNEL_SMS:
        raise BuildError(f"no attention kernels for SM {sm}; they exist for SM {_listed(KERNEL_SMS)}")
    if shape.head_dim not in HEAD_DIMS:
        raise BuildError(f"no attention kernel for head size {shape.head_dim}; they exist for {_listed(HEAD_DIMS)}")
    if shape.block_size not in BLOCK_SIZES:
        raise BuildError(f"no attention kernel for {shape.block_size} tokens per KV block; use {_listed(BLOCK_SIZES)}")
    if remainder or group > MAX_GROUP:
        raise BuildError(
            f"no attention kernel for {shape.num_heads} query heads over {shape.num_kv_heads} KV heads; each KV head "
            f"must serve the same number of query heads, at most {MAX_GROUP}"
        )
    if shape.rotary_dim % 2 or not 0 <= shape.rotary_dim <= shape.head_dim:
        raise BuildError(f"rotary size {shape.rotary_dim} must be even and at most the head size {shape.head_dim}")
    if shape.compute_dtype not in ("float16", "bfloat16"):
        raise BuildError(f"no attention kernel for {shape.compute_dtype}; use float16 or bfloat16")
    if shape.cache_dtype not in ("auto", "float8_e4m3"):
        raise BuildError(f"no attention kernel for a KV cache of {shape.cache_dtype}; use auto or float8_e4m3")
    if shape.cache_dtype == "float8_e4m3" and sm < FIRST_FP8_SM:
        raise BuildError(
            f"SM {sm} has no float8 instructions, so no float8_e4m3 KV cache; use auto, or SM {FIRST_FP8_SM} or newer"
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values[:-1])) + f" and {values[-1]}"


@lru_cache(maxsize=64)  # layers of one shape share a bundle
def compile_bundle(shape: AttentionShape, sm: int) -> KernelBundle:
    """Compile the kernels of a shape for an architecture (89 is compute capability 8.9). No GPU is needed.

    Raises BuildError for what the kernels do not cover, without the triton package, or when the compiler fails.
    """
    check_kernels_exist(shape, sm)
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise BuildError(
            "the attention kernels need the package triton, which is not installed; "
            "run: pip install 'trtc[tensorrt-rtx]'"
        ) from error
    return KernelBundle(tuple(_compile(spec, shape, sm) for spec in kernel_specs(shape)))


def _compile(spec: KernelSpec, shape: AttentionShape, sm: int) -> KernelImage:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = spec.function()
    if not isinstance(function, triton.JITFunction):
        raise BuildError("the attention kernels cannot be compiled while TRITON_INTERPRET is set; unset it")
    names = function.arg_names
    signature = {n: "constexpr" if n in spec.constants else parameter_type(n, shape) for n in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n].startswith("*")}
    options = {
        "num_warps": spec.num_warps,
        "num_stages": spec.num_stages,
        "enable_fp_fusion": False,  # a sum rounds alike wherever the compiler puts it
    }
    source = ASTSource(function, signature=signature, constexprs=spec.constants, attrs=aligned)
    try:
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.disable_line_info = True  # names this machine's folders
            kernel = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
    except Exception as error:
        raise BuildError(f"compiling the kernel {spec.role} for SM {sm} failed: {error}") from error
    metadata, cubin = kernel.metadata, kernel.asm["cubin"]
    assert metadata.global_scratch_size == metadata.profile_scratch_size == 0, spec.role
    resources = kernel_resources(cubin)
    return KernelImage(
        role=spec.role,
        entry=metadata.name,
        num_warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        registers=resources.registers,
        spill_bytes=resources.spill_bytes,
        constants={name: value for name, value in spec.constants.items() if isinstance(value, int)},
        cubin=cubin,
    )
