"""``LLM``: an engine with its executor and tokenizer in this process. Names follow TensorRT-LLM's LLM API."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from trtc import _core
from trtc.config import BuildConfig, KvCacheConfig, QuantConfig, SchedulerConfig
from trtc.engine.reader import open_engine
from trtc.environment import user_path
from trtc.errors import EngineError, RequestError
from trtc.runtime.chat import Message
from trtc.runtime.dispatcher import Dispatcher
from trtc.runtime.inputs import PromptInput, encode_prompt, naming, render_chat, split_batch
from trtc.runtime.llm_settings import (
    build_settings,
    engine_directory,
    executor_config,
    params_of,
    params_of_each,
    settings_of,
)
from trtc.runtime.request_output import RequestOutput
from trtc.runtime.requests import make_request
from trtc.runtime.response_decoder import ResponseDecoder
from trtc.runtime.sampling_params import SamplingParams
from trtc.runtime.stats import iteration_stats
from trtc.runtime.tokenizer import Tokenizer


class LLM:
    """Generates text with one model.

    ``model`` is an engine directory, opened as it is, or a checkpoint (Hugging Face directory, ``.gguf`` file, hub id),
    which is built once into the user's cache. ``dtype``, ``quant_config`` and ``tensor_parallel_size`` replace the
    fields of ``build_config``; all four are for checkpoints only. Settings may be dicts. ``num_threads`` 0 takes
    every usable core. ``progress(stage, done, total)`` follows a build. Threads may share one LLM.

    Raises ConfigError, CheckpointError, RecipeError, BuildError, EngineError or ExecutorError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
        tensor_parallel_size: int = 1,
        quant_config: QuantConfig | dict[str, Any] | None = None,
        build_config: BuildConfig | dict[str, Any] | None = None,
        kv_cache_config: KvCacheConfig | dict[str, Any] | None = None,
        scheduler_config: SchedulerConfig | dict[str, Any] | None = None,
        num_threads: int = 0,
        skip_tokenizer_init: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        build = build_settings(
            settings_of(BuildConfig, build_config), dtype, settings_of(QuantConfig, quant_config), tensor_parallel_size
        )
        self.engine_dir = engine_directory(model, build, progress)
        self._engine = open_engine(self.engine_dir)
        self._engine.require_backend()
        self.tokenizer = None if skip_tokenizer_init else Tokenizer.from_directory(self.engine_dir)
        config = executor_config(
            settings_of(KvCacheConfig, kv_cache_config) or KvCacheConfig(),
            settings_of(SchedulerConfig, scheduler_config) or SchedulerConfig(),
            num_threads,
        )
        self._dispatcher = Dispatcher(_core.Executor(str(self.engine_dir), config))
        # Runs when this object goes, at the latest when Python exits: the threads must end before the interpreter.
        self._close = weakref.finalize(self, self._dispatcher.shutdown)

    @property
    def build_config(self) -> BuildConfig:
        """What the engine was built with."""
        return self._engine.manifest.build_config

    @property
    def max_seq_len(self) -> int:
        """Prompt and output together, in tokens."""
        return self._engine.manifest.limits.max_seq_len

    def generate(
        self,
        inputs: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
        cache_salt: str | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Generate for one prompt (text, token ids or chat messages) or a list of them and wait for all.

        One prompt gives one RequestOutput, a list gives a list in its order. ``sampling_params`` is one for all, or one
        for each. ``use_tqdm`` shows a progress bar. Raises RequestError naming the prompt and field that cannot be
        served; nothing is left running then.
        """
        prompts, batched = split_batch(inputs)
        params = params_of_each(sampling_params, len(prompts))
        requests: list[RequestOutput] = []
        try:
            for index, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
                with naming(index, batched):
                    requests.append(self.generate_async(prompt, own, streaming=False, cache_salt=cache_salt))
            for request in _with_progress(requests) if use_tqdm else requests:
                request.result()
        finally:
            for request in requests:
                request.abort()
        return requests if batched else requests[0]

    def generate_async(
        self,
        inputs: PromptInput,
        sampling_params: SamplingParams | None = None,
        streaming: bool = True,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        """Start one request and return at once: iterate it (``async for`` or ``for``), await it, or call ``result()``.

        With ``streaming`` every step of the iteration brings what is new; without, there is one step, the last. Prompts
        share cached prefixes only under the same ``cache_salt``. Raises RequestError.
        """
        params = params_of(sampling_params)
        text, token_ids = encode_prompt(inputs, self.tokenizer, params)
        return self._start(text, token_ids, params, streaming, cache_salt)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
        add_generation_prompt: bool = True,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """``generate`` for one conversation or a list of them. ``chat_template_kwargs`` are names for the template."""
        if self.tokenizer is None:
            raise RequestError("messages: chat needs the tokenizer, which was left out (skip_tokenizer_init)")
        conversations, batched = split_batch(messages)
        prompts: list[PromptInput] = []
        for index, conversation in enumerate(conversations):
            with naming(index, batched):
                prompts.append(
                    render_chat(conversation, self.tokenizer, add_generation_prompt, chat_template_kwargs)  # type: ignore[arg-type]
                )
        return self.generate(prompts if batched else prompts[0], sampling_params, use_tqdm)

    def abort(self, request: RequestOutput | int) -> None:
        """Stop a request, given as such or by its request_id. Finished and unknown ones are left alone."""
        if isinstance(request, RequestOutput):
            request.abort()
        else:
            self._dispatcher.abort(request)

    def get_stats(self) -> list[dict[str, Any]]:
        """One entry for each executor iteration since the last call; names follow TensorRT-LLM's."""
        return [iteration_stats(stats) for stats in self._dispatcher.iteration_stats()]

    def save(self, engine_dir: str | Path) -> None:
        """Copy the engine to ``engine_dir``, which must not exist or be empty. Raises EngineError."""
        target = user_path(engine_dir)
        if self.engine_dir.resolve() in target.resolve().parents:
            raise EngineError(f"{target} lies inside the engine; save to another directory")
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise EngineError(f"{target} exists; save to a new directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as draft:
                copy = Path(draft) / "engine"
                shutil.copytree(self.engine_dir, copy)
                copy.replace(target)
        except OSError as error:
            raise EngineError(f"{target} cannot be written: {error.strerror or error}") from error

    def shutdown(self) -> None:
        """Cancel what is running and free the engine. May be called again."""
        self._close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _start(
        self, text: str | None, token_ids: list[int], params: SamplingParams, streaming: bool, cache_salt: str | None
    ) -> RequestOutput:
        request = make_request(
            token_ids,
            params,
            self.tokenizer,
            end_ids=self._engine.manifest.generation.eos_token_ids,
            streaming=streaming,
            cache_salt=cache_salt,
        )
        if params.stop and self.tokenizer is None:
            raise RequestError("stop: text needs the tokenizer, which was left out; use stop_token_ids")
        request_id, queue = self._dispatcher.submit(request, ResponseDecoder(params, self.tokenizer))
        return RequestOutput(request_id, text, token_ids, params.n, streaming, queue, self._dispatcher.abort)


def _with_progress(requests: list[RequestOutput]) -> Iterable[RequestOutput]:
    from rich.progress import track

    return track(requests, description="Processed requests")
