"""What the settings given to ``LLM`` come to: an engine directory, an executor configuration, parameters per prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trtc import _core
from trtc.config import BuildConfig, KvCacheConfig, Mapping, QuantConfig, SchedulerConfig, Settings
from trtc.environment import user_path
from trtc.errors import ConfigError, RequestError
from trtc.runtime.model_cache import cached_engine, is_engine
from trtc.runtime.sampling_params import SamplingParams

S = TypeVar("S", bound=Settings)


def settings_of(kind: type[S], given: S | dict[str, Any] | None) -> S | None:
    """``given`` as ``kind``. Raises ConfigError when it is something else."""
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind(**given)
    raise ConfigError(f"got {type(given).__name__}, expected {kind.__name__} or a dict of its fields")


def build_settings(
    config: BuildConfig | None, dtype: str, quant: QuantConfig | None, tp_size: int
) -> BuildConfig | None:
    """The settings to build with; None when none was given."""
    changes: dict[str, Any] = {}
    if dtype != "auto":
        changes["dtype"] = dtype
    if quant is not None:
        changes["quant"] = quant
    if tp_size != 1:
        changes["mapping"] = Mapping(tp_size=tp_size)
    if not changes:
        return config
    return BuildConfig(**{**(dict(config) if config is not None else {}), **changes})


def engine_directory(
    model: str | Path, build: BuildConfig | None, progress: Callable[[str, int, int], None] | None
) -> Path:
    if not is_engine(model):
        if build is not None and build.target not in ("cpu", *_core.tensorrt_runtimes()):
            raise ConfigError(
                f"build_config.target is {build.target}, and this build of trtc has no TensorRT backend to run such an "
                "engine; use target cpu, or make the engine with `trtc build` for another machine"
            )
        return cached_engine(model, build or BuildConfig(), progress)
    if build is not None:
        raise ConfigError(
            f"{model} is a built engine, whose dtype, quantization and limits are fixed; leave out the build settings, "
            "or pass the checkpoint to build another"
        )
    return user_path(model)


def executor_config(kv_cache: KvCacheConfig, scheduler: SchedulerConfig, num_threads: int) -> _core.ExecutorConfig:
    most = max(os.cpu_count() or 1, 16)  # waiting threads spin, so many more than cores would bring all to a halt
    if isinstance(num_threads, bool) or not isinstance(num_threads, int) or not 0 <= num_threads <= most:
        raise ConfigError(f"num_threads: got {num_threads!r}, expected 0 (every usable core) to {most}")
    return _core.ExecutorConfig(
        scheduler_config=_core.SchedulerConfig(
            policy=getattr(_core.CapacitySchedulerPolicy, scheduler.capacity_scheduler_policy),
            enable_chunked_prefill=scheduler.enable_chunked_prefill,
            max_batch_size=scheduler.max_batch_size,
            max_num_tokens=scheduler.max_num_tokens,
        ),
        kv_cache_config=_core.KvCacheConfig(**dict(kv_cache)),
        num_threads=num_threads,
    )


def params_of_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if isinstance(params, str) or not isinstance(params, Sequence):
        return [params_of(params)] * count
    if len(params) != count:
        raise RequestError(
            f"sampling_params: got {len(params)} for {count} prompts, expected one for all or one for each"
        )
    return [params_of(own) for own in params]


def params_of(params: object) -> SamplingParams:
    """``params``, or the defaults for None. Raises RequestError when it is something else."""
    if params is None or isinstance(params, SamplingParams):
        return params or SamplingParams()
    raise RequestError(f"sampling_params: got {type(params).__name__}, expected SamplingParams")
