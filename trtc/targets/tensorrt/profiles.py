"""Optimization profiles: the ranges of shapes that TensorRT chooses kernels for."""

from __future__ import annotations

from dataclasses import dataclass

from trtc.graph import contract
from trtc.graph.contract import Dim

DECODE, MIXED = "decode", "mixed"
_MAX_VOLUME = (1 << 31) - 1  # elements of a tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """The engine's limits that bound shapes; tokens, sequences or rows."""

    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_logit_rows: int
    tokens_per_block: int

    @property
    def max_blocks(self) -> int:
        """Columns of the block table."""
        return -(-self.max_seq_len // self.tokens_per_block)


@dataclass(frozen=True)
class Range:
    """Of one dimension. ``best`` is the size that kernels are chosen for."""

    least: int
    best: int
    most: int


def profile_ranges(limits: Limits, elements_per_block: int) -> dict[str, dict[Dim, Range]]:
    """Ranges of the symbolic dimensions, by profile: decode has one row per sequence, mixed any step.

    ``elements_per_block`` is the largest layer's, which bounds the pool by the volume a tensor may have.
    """
    seqs = limits.max_batch_size
    pool = _MAX_VOLUME // elements_per_block
    common: dict[Dim, Range] = {
        contract.SEQS: Range(1, seqs, seqs),
        contract.SEQS_PLUS_ONE: Range(2, seqs + 1, seqs + 1),
        contract.MAX_BLOCKS: Range(1, limits.max_blocks, limits.max_blocks),
        contract.BLOCKS: Range(1, min(pool, seqs * limits.max_blocks), pool),
    }
    decode: dict[Dim, Range] = {
        **common,
        contract.TOKENS: Range(1, seqs, seqs),
        contract.LOGIT_ROWS: Range(1, seqs, seqs),
    }
    tokens, rows = limits.max_num_tokens, limits.max_logit_rows
    mixed: dict[Dim, Range] = {
        **common,
        contract.TOKENS: Range(1, tokens, tokens),
        contract.LOGIT_ROWS: Range(1, min(seqs, rows), rows),
    }
    return {DECODE: decode, MIXED: mixed}


def shapes_of(dims: tuple[Dim, ...], ranges: dict[Dim, Range]) -> tuple[Shape, Shape, Shape]:
    """Least, best and most shape of a binding."""
    bounds = [ranges[dim] if isinstance(dim, str) else Range(dim, dim, dim) for dim in dims]
    return tuple(b.least for b in bounds), tuple(b.best for b in bounds), tuple(b.most for b in bounds)
