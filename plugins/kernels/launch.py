"""One step of a layer's attention, launched from Python: what the plugin's C++ half does, for tests and measurements.

Tensors are torch tensors on the device that the kernels run on; shapes are those of the plugin's inputs.
"""

from __future__ import annotations

from typing import Any

from plugins.kernels.shape import SPLIT, AttentionShape
from plugins.kernels.specs import kernel_specs

ALIGNMENT = 256  # of the parts of the workspace


def context_splits(shape: AttentionShape, max_blocks: int) -> int:
    """Splits of the longest context that a block table of ``max_blocks`` columns can hold."""
    return -(-max_blocks * shape.block_size // SPLIT)


def workspace_rows(shape: AttentionShape, max_tokens: int, max_blocks: int) -> int:
    """Rows [num_heads, head_dim] of partial_output that an engine keeps room for: a single row can always be split."""
    return max(max_tokens, context_splits(shape, max_blocks))


def workspace_bytes(shape: AttentionShape, max_tokens: int, max_blocks: int) -> int:
    """rotated_query, partial_output and partial_state one after the other, each aligned; for the largest step."""
    rows = workspace_rows(shape, max_tokens, max_blocks) * shape.num_heads
    rotated = max_tokens * shape.num_heads * shape.head_dim * 2 if shape.rotary_dim else 0
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in (rotated, rows * shape.head_dim * 4, rows * 2 * 4))


def split_count(shape: AttentionShape, tokens: int, max_blocks: int, rows: int) -> int:
    """Programs that share a context: one for each split where their parts fit into ``rows`` of partial_output, else 1.

    Changes no bit of the result.
    """
    splits = context_splits(shape, max_blocks)
    return splits if splits * tokens <= rows else 1


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
