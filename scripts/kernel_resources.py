"""Compiles the attention kernels for every architecture and records what they need: docs/kernel_resources.json.

    python scripts/kernel_resources.py

Needs triton and no GPU; takes some minutes. A test compiles some of the rows again and compares. What does not fit
into registers may lie on the stack between the splits of a context; loop_spills counts the instructions that would move
it in the loop over the tiles of a split, where the time goes.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from plugins.kernels.shape import HEAD_DIMS, AttentionShape
from trtc.targets.tensorrt.kernel_bundle import FIRST_FP8_SM, KERNEL_SMS, compile_bundle

TABLE = Path(__file__).parents[1] / "docs/kernel_resources.json"
VARIANT_HEAD_DIM = 128  # the other head sizes are measured plain
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bfloat16, 16 tokens per block": {"compute_dtype": "bfloat16", "block_size": 16},
    "window and soft cap": {"window": 1024, "softcap": 50.0},
    "float8 cache": {"cache_dtype": "float8_e4m3"},
}


def shape_of(head_dim: int, variant: str) -> AttentionShape:
    """The shape of a row: Llama 3's heads, of any size."""
    fields = {"num_heads": 32, "num_kv_heads": 8, "head_dim": head_dim, "rotary_dim": head_dim, "block_size": 64}
    return AttentionShape(**{"scale": head_dim**-0.5, **fields, **VARIANTS[variant]})  # type: ignore[arg-type]


def measure(sm: int, head_dim: int, variant: str) -> dict[str, Any]:
    """One row of the table."""
    kernels = {
        kernel.role: {
            "registers": kernel.registers,
            "spill_bytes": kernel.spill_bytes,
            "loop_spills": loop_spills(kernel.cubin),
            "shared_bytes": kernel.shared_bytes,
            "cubin_bytes": len(kernel.cubin),
        }
        for kernel in compile_bundle(shape_of(head_dim, variant), sm).kernels
    }
    return {"sm": sm, "head_dim": head_dim, "variant": variant, "kernels": kernels}


def loop_spills(cubin: bytes) -> int:
    """Loads and stores of the stack inside the innermost loops that compute exponentials."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.nvdisasm.path, "-c", file.name]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    labels, loops = {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = number
        elif (branch := re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", line)) and branch[1] in labels:
            loops.append((labels[branch[1]], number))
    innermost = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    bodies = ["\n".join(lines[begin:end]) for begin, end in innermost]
    return sum(len(re.findall(r"\b(?:STL|LDL)\b", body)) for body in bodies if "MUFU.EX2" in body)


def assembler_version() -> str:
    from triton import knobs

    printed = subprocess.run([knobs.nvidia.ptxas.path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V[\d.]+", printed)
    return found.group() if found else printed


def main() -> None:
    rows = [
        measure(sm, head_dim, variant)
        for sm in KERNEL_SMS
        for head_dim in HEAD_DIMS
        for variant in (VARIANTS if head_dim == VARIANT_HEAD_DIM else ["plain"])
        if sm >= FIRST_FP8_SM or "float8" not in variant
    ]
    head = {
        "command": "python scripts/kernel_resources.py",
        "triton": version("triton"),
        "ptxas": assembler_version(),
        "shape": "32 query heads, 8 KV heads, float16, 64 tokens per block, rotary embedding of all channels",
    }
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    TABLE.write_text(json.dumps(head, indent=2)[:-2] + f',\n  "rows": [\n{lines}\n  ]\n}}\n', encoding="utf-8")
    print(f"{TABLE}: {len(rows)} rows")


if __name__ == "__main__":
    main()
