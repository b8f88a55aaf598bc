"""What quantization costs on a real model: KL divergence and top-1 agreement of its logits with float32's.

SmolLM2-135M-Instruct, every position of the texts below, this CPU target against itself. Print the table with

    python -m tests.parity.test_quantization_quality

which says (302 positions, AVX-512 VNNI):

    w8a16: mean KL 0.00163 nats, top-1 agreement 0.980
    w8a8: mean KL 0.00599 nats, top-1 agreement 0.964
    w4a16: mean KL 0.00001 nats, top-1 agreement 1.000
    w4a8: mean KL 0.00379 nats, top-1 agreement 0.974

The model's file is Q4_1, whose values int4 with zero points keeps; int8, being symmetric, rounds them again.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.demo_model import build_once
from trtc.config import BuildConfig, QuantConfig
from trtc.runtime.tokenizer import Tokenizer

TEXTS = (
    "The capital of France is Paris, a city on the river Seine that has been a centre of art and science for ages.",
    "Water boils at 100 degrees Celsius at sea level, because there the pressure of its vapour equals that of the air.",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
    "Dear Ms. Alvarez,\n\nThank you for your order of 12 March. We are sorry to tell you that it will arrive late.\n",
    "Once upon a time a small fox lived at the edge of a dark forest. At night it watched the lights of a village.",
    "1, 2, 4, 8, 16, 32, 64, 128, 256. If 3x + 5 = 20, then x = 5. The sum of the angles of a triangle is 180 degrees.",
    "La tour Eiffel se trouve à Paris. Der Rhein fließt durch Köln. El sol sale por el este.",
    '{"name": "Ada", "born": 1815, "fields": ["mathematics", "computing"], "teacher": "Augustus De Morgan"}',
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital is Paris.",
)


@dataclass(frozen=True)
class Bound:
    """Largest mean KL(float32 || quantized) per position, in nats, and smallest share of equal best tokens."""

    mean_kl: float
    top1: float


BOUNDS = {
    "w8a16": Bound(0.0025, 0.96),
    "w8a8": Bound(0.009, 0.95),
    "w4a16": Bound(0.0001, 0.99),
    "w4a8": Bound(0.006, 0.96),
}


def quantized(algo: str, directory: Path) -> Path:
    """The demo model's engine under ``algo``; its KV cache is float32, so that only the linear layers differ."""
    config = BuildConfig(dtype="float32", quant=QuantConfig(quant_algo=algo), max_seq_len=2048)
    return build_once(directory, f"smollm2-float32-{algo}", config)


def log_probabilities(engine: Path) -> np.ndarray:
    """float64 [positions of all texts, vocab]."""
    from trtc import _core

    tokenizer = Tokenizer.from_directory(engine)
    model = _core.CpuModel(str(engine))
    model.allocate_kv_cache(8)
    blocks = np.arange(8, dtype=np.int32)[None]
    parts = []
    for text in TEXTS:
        ids = np.array(tokenizer.encode(text), np.int32)
        for start in range(0, len(ids), model.info.max_logit_rows):
            stop = min(start + model.info.max_logit_rows, len(ids))
            rows, ends = np.arange(stop - start, dtype=np.int32), np.array([0, stop - start], np.int32)
            context = np.array([stop], np.int32)
            parts.append(model.run(ids[start:stop], rows + start, ends, context, blocks, rows).astype(np.float64))
    logits = np.concatenate(parts)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def compare(reference: np.ndarray, other: np.ndarray) -> Bound:
    kl = (np.exp(reference) * (reference - other)).sum(axis=1)
    return Bound(float(kl.mean()), float((reference.argmax(axis=1) == other.argmax(axis=1)).mean()))


@pytest.fixture(scope="module")
def float32(smollm2_float32):
    return log_probabilities(smollm2_float32)


@pytest.mark.parametrize("algo", BOUNDS)
def test_quantized_logits_stay_close_to_float32(float32, run_directory, algo):
    measured = compare(float32, log_probabilities(quantized(algo, run_directory)))
    assert 0 < measured.mean_kl <= BOUNDS[algo].mean_kl
    assert measured.top1 >= BOUNDS[algo].top1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        baseline = log_probabilities(quantized("none", Path(scratch)))
        print(f"{len(baseline)} positions of {len(TEXTS)} texts")
        for name in BOUNDS:
            result = compare(baseline, log_probabilities(quantized(name, Path(scratch))))
            print(f"{name}: mean KL {result.mean_kl:.5f} nats, top-1 agreement {result.top1:.3f}")
