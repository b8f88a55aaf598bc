"""Compares any implementation of a step with transformers: packed sequences, chunked prefill, paged decode.

An implementation is a function from the step inputs of ``trtc.graph.contract`` (without the KV pools, which it keeps
itself) to logits float32 [logit_rows, vocab]. The expected logits are one transformers forward over the whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from model_recipes import build_graph
from tests.parity.cases import ParityCase
from tests.tiny_models import save_tiny_model, tiny_model
from trtc.checkpoint.hf_config import model_config_from_hf
from trtc.checkpoint.reader import open_checkpoint
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.reference import evaluate_ranks
from trtc.graph.shard import Shard

Array = np.ndarray[Any, Any]
StepRunner = Callable[[dict[str, Array]], Array]

BLOCK_SIZE = 8
NUM_BLOCKS = 40
DECODED = 6  # tokens of each sequence that are fed one by one
TOLERANCE = 1e-4


class ReferenceRunner:
    """A step runner over the numpy evaluator, of one graph or of all ranks' graphs.

    Slots never written hold NaN, so that reading one shows.
    """

    def __init__(self, *ranks: ir.Model, num_blocks: int = NUM_BLOCKS) -> None:
        self._ranks = ranks
        self._caches = [
            {
                value.name: np.full((num_blocks, *list(value.shape)[1:]), np.nan, np.float32)
                for value in model.graph.inputs
                if value.name.startswith("kv_cache.")
            }
            for model in ranks
        ]

    def __call__(self, inputs: dict[str, Array]) -> Array:
        outputs = evaluate_ranks(self._ranks, [{**inputs, **caches} for caches in self._caches])
        self._caches = [
            {name: arrays[f"{name}.out"] for name in caches}
            for caches, arrays in zip(self._caches, outputs, strict=True)
        ]
        for other in outputs[1:]:
            np.testing.assert_array_equal(other["logits"], outputs[0]["logits"])
        return outputs[0]["logits"]


def build_case_graph(
    case: ParityCase, directory: Path, block_size: int = BLOCK_SIZE, shard: Shard | None = None
) -> ir.Model:
    """Write the case's model into ``directory`` and build its step graph, before any pass."""
    if not (directory / "config.json").exists():
        save_tiny_model(case.model_type, directory, **case.overrides)
    checkpoint = open_checkpoint(directory)
    config = model_config_from_hf(checkpoint.config)
    weights = WeightMap(checkpoint.tensors, config.model_type)
    return build_graph(config, weights, block_size, case.max_seq_len, shard)


def case_sequences(case: ParityCase, seed: int = 7) -> list[list[int]]:
    """Random token ids, one sequence per prompt length, each with DECODED tokens more."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, length + DECODED).tolist() for length in case.prompt_lengths]


def transformers_logits(case: ParityCase, sequences: Sequence[Sequence[int]]) -> list[Array]:
    """Per sequence float32 [len, vocab]: one forward over each whole sequence."""
    import torch

    model = tiny_model(case.model_type, **case.overrides)
    softcap = getattr(model.config, "attn_logit_softcapping", None)
    with torch.no_grad(), _gemma3_attention_softcap(softcap) if softcap else nullcontext():
        return [model(torch.tensor([list(sequence)]), use_cache=False).logits[0].numpy() for sequence in sequences]


@contextmanager
def _gemma3_attention_softcap(softcap: float) -> Iterator[None]:
    """transformers' Gemma3Attention keeps the attention soft cap of its config but never passes it on; do so."""
    from transformers.models.gemma3 import modeling_gemma3

    original = modeling_gemma3.eager_attention_forward
    modeling_gemma3.eager_attention_forward = partial(original, softcap=softcap)
    try:
        yield
    finally:
        modeling_gemma3.eager_attention_forward = original


def packed_steps(
    sequences: Sequence[Sequence[int]],
    chunk: int,
    *,
    decoded: int = DECODED,
    all_rows: bool = True,
    block_size: int = BLOCK_SIZE,
    num_blocks: int = NUM_BLOCKS,
    seed: int = 3,
) -> Iterator[tuple[dict[str, Array], list[tuple[int, int]]]]:
    """Steps that feed all sequences: chunks of a prefill, then one token at a time, sequences at their own pace.

    Sequence i starts at step i, so that prefill chunks and decode rows share steps. Physical blocks are a random
    permutation. Yields (step inputs, (sequence, position) of each row of logits); ``all_rows`` False asks only for the
    last row of each sequence's chunk.
    """
    free = np.random.default_rng(seed).permutation(num_blocks).tolist()
    tables = [[free.pop() for _ in range(math.ceil(len(sequence) / block_size))] for sequence in sequences]
    width = max(map(len, tables))
    done = [0] * len(sequences)
    step = 0
    while any(done[i] < len(sequence) for i, sequence in enumerate(sequences)):
        parts: list[tuple[int, int, int]] = []
        for i, sequence in enumerate(sequences):
            if i <= step and done[i] < len(sequence):
                prompt = len(sequence) - decoded
                stop = min(done[i] + chunk, prompt) if done[i] < prompt else done[i] + 1
                parts.append((i, done[i], stop))
                done[i] = stop
        rows = [(i, position) for i, start, stop in parts for position in range(start, stop)]
        ends = np.cumsum([0, *(stop - start for _, start, stop in parts)])
        wanted = range(len(rows)) if all_rows else [int(end) - 1 for end in ends[1:]]
        yield (
            {
                "input_ids": np.array([sequences[i][position] for i, position in rows], np.int32),
                "position_ids": np.array([position for _, position in rows], np.int32),
                "query_start": ends.astype(np.int32),
                "context_lens": np.array([stop for _, _, stop in parts], np.int32),
                "block_table": np.array([tables[i] + [0] * (width - len(tables[i])) for i, _, _ in parts], np.int32),
                "logit_rows": np.array(list(wanted), np.int32),
            },
            [rows[row] for row in wanted],
        )
        step += 1


def collect_logits(
    step: StepRunner, steps: Iterator[tuple[dict[str, Array], list[tuple[int, int]]]]
) -> dict[tuple[int, int], Array]:
    """Run the steps. Returns logits float32 [vocab] by (sequence, position)."""
    logits: dict[tuple[int, int], Array] = {}
    for inputs, rows in steps:
        logits.update(zip(rows, step(inputs), strict=True))
    return logits


def relative_error(got: Mapping[tuple[int, int], Array], expected: Sequence[Array]) -> float:
    """Largest |difference| over all logits by the largest |expected| of its row; infinite when NaN appears."""
    errors = [
        np.abs(row - expected[i][position]).max() / np.abs(expected[i][position]).max()
        for (i, position), row in got.items()
    ]
    return float(max(np.nan_to_num(errors, nan=np.inf)))


def assert_parity(
    case: ParityCase,
    make_step: Callable[[], StepRunner],
    *,
    chunks: Sequence[int] = (64, 7),
    tolerance: float = TOLERANCE,
    **packing: Any,
) -> None:
    """``make_step`` gives a runner with an empty KV cache; ``packing`` goes to :func:`packed_steps`.

    The model is the one that :func:`build_case_graph` or ``save_tiny_model(case.model_type, ..., **case.overrides)``
    writes.
    """
    sequences = case_sequences(case)
    expected = transformers_logits(case, sequences)
    for chunk in chunks:
        got = collect_logits(make_step(), packed_steps(sequences, chunk, **packing))
        error = relative_error(got, expected)
        assert error <= tolerance, f"{case.name}, chunk {chunk}: relative error {error:.2e} over {tolerance:.0e}"
