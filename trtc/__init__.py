"""trtc: an ahead-of-time engine compiler and a C++ runtime for large language models.

    from trtc import LLM, SamplingParams

Names are imported when first used, so that ``import trtc`` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtc.config import BuildConfig as BuildConfig
    from trtc.config import KvCacheConfig as KvCacheConfig
    from trtc.config import QuantAlgo as QuantAlgo
    from trtc.config import QuantConfig as QuantConfig
    from trtc.config import SchedulerConfig as SchedulerConfig
    from trtc.errors import BuildError as BuildError
    from trtc.errors import CheckpointError as CheckpointError
    from trtc.errors import ConfigError as ConfigError
    from trtc.errors import EngineError as EngineError
    from trtc.errors import ExecutorError as ExecutorError
    from trtc.errors import GraphError as GraphError
    from trtc.errors import RecipeError as RecipeError
    from trtc.errors import RequestError as RequestError
    from trtc.errors import TrtcError as TrtcError
    from trtc.runtime.llm import LLM as LLM
    from trtc.runtime.outputs import CompletionOutput as CompletionOutput
    from trtc.runtime.request_output import RequestOutput as RequestOutput
    from trtc.runtime.sampling_params import SamplingParams as SamplingParams

__version__ = "0.1.0"

_MODULE_OF = {
    "LLM": "trtc.runtime.llm",
    "SamplingParams": "trtc.runtime.sampling_params",
    "RequestOutput": "trtc.runtime.request_output",
    "CompletionOutput": "trtc.runtime.outputs",
    **dict.fromkeys(("BuildConfig", "KvCacheConfig", "QuantAlgo", "QuantConfig", "SchedulerConfig"), "trtc.config"),
    **dict.fromkeys(
        (
            "TrtcError",
            "ConfigError",
            "CheckpointError",
            "RecipeError",
            "GraphError",
            "BuildError",
            "EngineError",
            "RequestError",
            "ExecutorError",
        ),
        "trtc.errors",
    ),
}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name == "_core":
        return _import_core()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'trtc' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def _import_core() -> Any:
    """The C++ module. Raises ImportError in a source tree, which Python prefers when it is started there."""
    try:
        return import_module("trtc._core")
    except ModuleNotFoundError as error:
        if error.name != "trtc._core":
            raise
        raise ImportError(
            f"{__path__[0]} is trtc's source, without its compiled module; start Python in another directory to import "
            "the installed trtc, or build the module here as CONTRIBUTING.md says"
        ) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
