#!/usr/bin/env python3
"""Time the linear kernels of one instruction set against the bandwidth of reading memory.

Needs the test modules (a build with TRTC_BUILD_TESTING=ON). Every figure is the fastest of its repetitions; weights are
cycled through copies that together exceed the caches.

    python scripts/bench/linear_kernels.py [--isa avx512_bf16] [--threads 2] [--sizes 2048x2048,8192x2048]
"""

from __future__ import annotations

import argparse

import numpy as np

from trtc import _core, _test_kernels

PRECISIONS = ["f32", "bf16", "i8", "i4"]
CACHES = 512 << 20  # more than any cache


def random_weight(precision: str, n: int, k: int) -> tuple[_test_kernels.PackedWeight, int]:
    """The packed weight and its bytes."""
    w = np.random.default_rng(0).normal(size=(n, k)).astype(np.float32)
    blob = np.empty(_core.packed_layout(precision, n, k, 32)["total_bytes"], np.uint8)
    if precision == "f32":
        _core.pack_f32(w, blob)
    elif precision == "bf16":
        _core.pack_bf16((w.view(np.uint32) >> 16).astype(np.uint16), blob)
    else:
        parts = _core.quantize_groupwise(w, 8 if precision == "i8" else 4, 32)
        (_core.pack_i8 if precision == "i8" else _core.pack_i4)(*parts, 32, blob)
    return _test_kernels.PackedWeight(precision, n, k, 32, blob), blob.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default=_test_kernels.available_isas()[-1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", default="2048x2048,8192x2048,2048x8192", help="n x k, comma-separated")
    parser.add_argument("--rows", default="1,4,8,64", help="comma-separated")
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    seconds = _test_kernels.time_reading(bytes=16 << 20, copies=32, threads=options.threads, repetitions=64)
    print(f"{options.isa}, {options.threads} threads; reading memory: {(16 << 20) / seconds / 1e9:.1f} GB/s")
    print(f"{'n x k':>12} {'weights':>8} {'x':>5} {'rows':>5} {'ms':>9} {'GB/s':>7} {'GFLOP/s':>8}")
    for size in options.sizes.split(","):
        n, k = (int(side) for side in size.split("x"))
        for precision in PRECISIONS:
            weight, weight_bytes = random_weight(precision, n, k)
            for int8_activations in [False, True] if precision in ("i8", "i4") else [False]:
                for rows in (int(count) for count in options.rows.split(",")):
                    seconds = _test_kernels.time_linear(
                        options.isa,
                        weight,
                        copies=1 + CACHES // weight_bytes,
                        rows=rows,
                        int8_activations=int8_activations,
                        threads=options.threads,
                        repetitions=options.repetitions,
                    )
                    x = "int8" if int8_activations else "float"
                    rates = f"{weight_bytes / seconds / 1e9:7.1f} {2e-9 * rows * n * k / seconds:8.1f}"
                    print(f"{size:>12} {precision:>8} {x:>5} {rows:5} {seconds * 1e3:9.3f} {rates}")


if __name__ == "__main__":
    main()
