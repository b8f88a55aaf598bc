"""Runs the kernels in Triton's interpreter, in a process of its own: the interpreter must be chosen before triton is
imported."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from plugins.kernels.shape import AttentionShape

TORCH_TYPES = {np.dtype(ml_dtypes.bfloat16): "bfloat16", np.dtype(ml_dtypes.float8_e4m3fn): "float8_e4m3fn"}


@contextmanager
def interpreter() -> Iterator[ProcessPoolExecutor]:
    """An executor for run_step. Its process starts with TRITON_INTERPRET=1; this one's other tests never see that."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            executor.submit(start).result()
        yield executor


def start() -> None:
    """Make the interpreter round as the hardware does: its own casts cut bfloat16 off and mangle small float8
    numbers, and its tl.dot takes the bits of a bfloat16 for an integer."""
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    assert triton.knobs.runtime.interpret
    narrow = {tl.bfloat16: ml_dtypes.bfloat16, tl.float8e4nv: ml_dtypes.float8_e4m3fn}
    own_convert, own_dot = interpreter._convert_float, interpreter.InterpreterBuilder.create_dot

    def convert(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
        if source not in narrow and target not in narrow:
            return own_convert(data, source, target, rounding)
        value = np.ascontiguousarray(data).view(narrow.get(source, data.dtype)).astype(np.float32)
        value = value.astype(narrow.get(target) or interpreter._get_np_dtype(target))
        return value.view(f"u{value.itemsize}")

    def dot(builder: Any, a: Any, b: Any, *others: Any) -> Any:
        def wide(x: Any) -> Any:
            kind = narrow.get(x.dtype.scalar, x.data.dtype)
            data = np.ascontiguousarray(x.data).view(kind).astype(np.float32)
            return interpreter.TensorHandle(data, tl.float32)

        return own_dot(builder, wide(a), wide(b), *others)

    interpreter._convert_float = convert
    interpreter.InterpreterBuilder.create_dot = dot
    # Checking every integer operation for overflow takes a third of the time and finds nothing at these sizes.
    interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)


def as_tensor(array: np.ndarray) -> Any:
    import torch

    name = TORCH_TYPES.get(array.dtype)
    if name is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(getattr(torch, name))


def run_step(shape: AttentionShape, arrays: dict[str, np.ndarray], splits: int) -> tuple[np.ndarray, np.ndarray]:
    """output and kv_cache after the step; scratch is NaN before it, padding rows of the output stay NaN."""
    from plugins.kernels.launch import launch_step

    query = arrays["query"]
    rows = splits * len(query) * shape.num_heads
    scratch = {
        "output": np.full_like(query, np.nan),
        "rotated_query": np.full_like(query, np.nan),
        "partial_output": np.full((rows, shape.head_dim), np.nan, np.float32),
        "partial_state": np.full((rows, 2), np.nan, np.float32),
    }
    owned = {name: array.copy() for name, array in arrays.items()} | scratch
    with np.errstate(invalid="ignore", over="ignore"):
        launch_step(shape, {name: as_tensor(array) for name, array in owned.items()}, splits)
    return owned["output"], owned["kv_cache"]
