"""SmolLM2 in float32 gives the greedy tokens that transformers gives."""

import numpy as np
import pytest

from tests.e2e.prompts import PROMPTS
from trtc import LLM, SamplingParams

OUTPUT_TOKENS = 32
NEAR_TIE = 1e-3  # a different token is allowed only where the two best logits are this close


@pytest.fixture(scope="module")
def reference(smollm2):
    """token ids -> float32 logits [tokens, vocab] of transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32).eval()

    def logits(token_ids):
        with torch.no_grad():
            return model(torch.tensor([token_ids])).logits[0].numpy()

    return logits


@pytest.fixture(scope="module")
def outputs(smollm2_float32):
    """Every prompt's output, all generated together."""
    params = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, return_generation_logits=True)
    with LLM(smollm2_float32) as llm:
        return dict(zip(PROMPTS, llm.generate(list(PROMPTS.values()), params), strict=True))


@pytest.mark.parametrize("kind", PROMPTS)
def test_greedy_tokens_are_those_of_transformers(reference, outputs, kind):
    request, output = outputs[kind], outputs[kind].outputs[0]
    assert output.length == OUTPUT_TOKENS
    # One pass over prompt and our output: up to a first difference this is transformers' own greedy decoding.
    theirs = reference(request.prompt_token_ids + output.token_ids[:-1])[len(request.prompt_token_ids) - 1 :]
    for position, token in enumerate(output.token_ids):
        best, second = np.sort(theirs[position])[:-3:-1]
        if token != theirs[position].argmax():
            assert best - second <= NEAR_TIE and theirs[position][token] == second
            return
        np.testing.assert_allclose(
            output.generation_logits[position], theirs[position], atol=2e-4 * np.abs(theirs).max()
        )
