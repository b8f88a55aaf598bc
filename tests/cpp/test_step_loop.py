"""Any mix of requests over the step loop: each gives what it gives alone, and nothing leaks."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.cpp.scripted_model import collect, run_alone
from trtc import _core
from trtc._test_executor import ScriptedLoop, ScriptedModel

VOCAB = 16
LONGEST = 24
BLOCK = 4
NAN_AFTER = 15

tokens = st.integers(0, 2)  # few, so that prefixes meet
words = st.lists(st.integers(0, VOCAB - 2), min_size=1, max_size=2)


@st.composite
def requests(draw: st.DrawFn) -> _core.Request:
    prompt = draw(st.lists(tokens, min_size=1, max_size=LONGEST - 1))
    max_tokens = draw(st.integers(1, LONGEST - len(prompt)))
    sampling: dict[str, Any] = {"num_return_sequences": draw(st.sampled_from([1, 1, 1, 2, 3]))}
    if draw(st.booleans()):
        sampling |= {"temperature": draw(st.sampled_from([0.5, 2.0])), "seed": draw(st.integers(0, 3))}
        sampling |= draw(st.sampled_from([{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}]))
    if draw(st.booleans()):
        sampling |= {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": -0.2}
        sampling["min_tokens"] = draw(st.integers(0, max_tokens))
    return _core.Request(
        input_token_ids=prompt,
        max_tokens=max_tokens,
        streaming=draw(st.booleans()),
        sampling_config=_core.SamplingConfig(**sampling),
        output_config=_core.OutputConfig(
            log_probs=draw(st.sampled_from([None, 0, 2])),
            prompt_log_probs=draw(st.sampled_from([None, None, None, 1])),
        ),
        end_id=draw(st.sampled_from([None, 3])),
        stop_words=draw(st.lists(words, max_size=2)),
        bad_words=[[NAN_AFTER], *draw(st.lists(words, max_size=1))],
        cache_salt=draw(st.sampled_from([None, None, "tenant"])),
    )


class StepLoopMachine(RuleBasedStateMachine):
    @initialize(
        batch=st.integers(3, 4),
        rows=st.integers(4, 12),
        logit_rows=st.integers(4, 8),
        pool=st.sampled_from([LONGEST, 2 * LONGEST, None]),
        reuse=st.booleans(),
    )
    def create(self, batch: int, rows: int, logit_rows: int, pool: int | None, reuse: bool) -> None:
        self.loop = ScriptedLoop(
            ScriptedModel(
                vocab_size=VOCAB,
                max_batch_size=batch,
                max_num_tokens=rows,
                max_seq_len=LONGEST,
                max_logit_rows=logit_rows,
                tokens_per_block=BLOCK,
                nan_after_token=NAN_AFTER,
            ),
            _core.ExecutorConfig(
                kv_cache_config=_core.KvCacheConfig(max_tokens=pool, enable_block_reuse=reuse),
            ),
        )
        self.capacity = self.loop.kv_cache_stats().max_num_blocks
        self.requests: dict[int, _core.Request] = {}
        self.cancelled: set[int] = set()
        self.broken: set[int] = set()
        self.responses: list[_core.Response] = []

    def fits(self, request: _core.Request) -> bool:
        length = len(request.input_token_ids)
        shared = length // BLOCK
        own = -(-(length + request.max_tokens - 1) // BLOCK) - shared
        return shared + request.sampling_config.num_return_sequences * own <= self.capacity

    @rule(request=requests())
    def add(self, request: _core.Request) -> None:
        if not self.fits(request):
            return
        request_id = len(self.requests) + 1
        self.requests[request_id] = request
        self.loop.add(request_id, request)

    @rule(prompt=st.lists(tokens, max_size=6))
    def add_one_whose_logits_break(self, prompt: list[int]) -> None:
        request = _core.Request(input_token_ids=[*prompt, NAN_AFTER], max_tokens=4)
        self.add(request)
        self.broken.add(len(self.requests))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        self.loop.cancel(request_id)
        self.fetch()
        collected = collect(self.responses)[request_id]
        assert collected.final
        if _core.FinishReason.CANCELLED in collected.finish_reasons.values():
            self.cancelled.add(request_id)

    @precondition(lambda self: not self.loop.idle)
    @rule(steps=st.integers(1, 5))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if not self.loop.idle:
                stats = self.loop.step()
                assert stats.num_context_tokens + stats.num_generation_tokens >= 1
        self.fetch()

    @invariant()
    def blocks_add_up(self) -> None:
        stats = self.loop.kv_cache_stats()
        assert stats.free_num_blocks + stats.used_num_blocks + stats.cached_num_blocks == self.capacity

    def fetch(self) -> None:
        self.responses += self.loop.take_responses()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        while not self.loop.idle:
            self.loop.step()
        self.fetch()
        assert self.loop.kv_cache_stats().used_num_blocks == 0
        collected = collect(self.responses)
        assert collected.keys() == self.requests.keys()
        for request_id, request in self.requests.items():
            self.check(request_id, request, collected[request_id])

    def check(self, request_id: int, request: _core.Request, got: Any) -> None:
        assert got.final
        if request_id in self.broken and request_id not in self.cancelled:
            assert "NaN" in got.error
            return
        assert got.error is None
        if request_id in self.broken:
            return
        for index, expected in enumerate(run_alone(request, VOCAB)):
            if got.finish_reasons[index] == _core.FinishReason.CANCELLED:
                assert request_id in self.cancelled
                assert got.tokens[index] == expected.tokens[: len(got.tokens[index])]
                continue
            assert got.tokens[index] == expected.tokens
            assert got.finish_reasons[index] == expected.finish_reason
            assert got.log_probs[index] == expected.log_probs


TestStepLoop = StepLoopMachine.TestCase
TestStepLoop.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
