"""TensorRT's log: what it calls an error becomes a BuildError that names the layer."""

from __future__ import annotations

from typing import Any

from trtc.errors import BuildError
from trtc.targets.tensorrt.flavour import Module

_NOT_NAMED = "the network"


class Log:
    """Collects what TensorRT logs. ``logger`` is the object that TensorRT takes."""

    def __init__(self, trt: Module) -> None:
        self._errors: list[str] = []
        log, worst = self, (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR)

        class Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in worst and not _is_about_the_missing_driver(message):
                    log._errors.append(" ".join(message.split()))

        self.logger = Logger()

    def check(self, layer: str | None = None) -> None:
        """Raises BuildError when something was logged since the last call."""
        if self._errors:
            raise self.error(layer, "the layer was refused")

    def error(self, layer: str | None, what: str) -> BuildError:
        """What was logged, or ``what``, as an error of the layer of that name."""
        said = "; ".join(dict.fromkeys(self._errors[:3])) or what
        self._errors.clear()
        return BuildError(f"TensorRT cannot build {layer or _NOT_NAMED}: {said}")


def _is_about_the_missing_driver(message: str) -> bool:
    """Building needs no GPU, and TensorRT tells that there is none each time it looks."""
    return "CUDA driver version is insufficient" in message or "no CUDA-capable device" in message
