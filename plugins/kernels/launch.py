"""One step of a layer's attention, launched from Python: what the plugin's C++ half does, for tests and measurements.

Tensors are torch tensors on the device that the kernels run on; shapes are those of the plugin's inputs.
"""

from __future__ import annotations

from typing import Any

from plugins.kernels.shape import SPLIT, AttentionShape
from plugins.kernels.specs import kernel_specs


def split_count(shape: AttentionShape, tokens: int, max_blocks: int, workspace_rows: int) -> int:
    """Programs that share a context: all its splits where their parts fit the workspace, else 1. Changes no bit.

    ``workspace_rows``: rows [num_heads, head_dim] that partial_output has room for.
    """
    splits = -(-max_blocks * shape.block_size // SPLIT)
    return splits if splits * tokens <= workspace_rows else 1


def grid(role: str, constants: dict[str, Any], tokens: int, seqs: int, splits: int) -> tuple[int, int, int]:
    """Programs of a kernel: functions of shapes alone, so that a step can be captured in a CUDA graph."""
    if role == "rotary_kv_write":
        kv_programs = -(-constants["NUM_KV_HEADS"] // constants["HEADS_PER_PROGRAM"])
        return tokens, constants["QUERY_PROGRAMS"] + kv_programs, 1
    if role == "paged_attention":
        heads = constants["NUM_KV_HEADS"] * constants["VALUE_PARTS"]
        return tokens // constants["BLOCK_TOKENS"] + seqs, heads, splits
    return tokens, -(-constants["NUM_HEADS"] // constants["HEADS_PER_PROGRAM"]), 1


def launch_step(shape: AttentionShape, tensors: dict[str, Any], splits: int) -> None:
    """Write the step's keys and values into ``kv_cache`` and its attention into ``output``.

    ``tensors``: an entry per pointer parameter of the kernels (specs.POINTERS), scratch included; cos, sin and
    rotated_query may lack when nothing is rotated, partial_output and partial_state when ``splits`` is 1.
    """
    tokens, (seqs, max_blocks) = tensors["query"].shape[0], tensors["block_table"].shape
    arguments = {**tensors, "tokens": tokens, "seqs": seqs, "max_blocks": max_blocks}
    if shape.rotary_dim == 0:
        arguments |= {"rotated_query": tensors["query"], "cos": tensors["query"], "sin": tensors["query"]}
    if splits == 1:
        arguments |= {"partial_output": tensors["output"], "partial_state": tensors["output"]}
    for spec in kernel_specs(shape):
        if spec.role == "combine_splits" and splits == 1:
            continue
        function = spec.function()
        parameters = {name: arguments[name] for name in function.arg_names if name not in spec.constants}
        function[grid(spec.role, spec.constants, tokens, seqs, splits)](
            **parameters,
            **spec.constants,
            num_warps=spec.num_warps,
            num_stages=spec.num_stages,
            enable_fp_fusion=False,
        )
