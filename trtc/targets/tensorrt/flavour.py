"""The two TensorRTs: which Python package each is, and how a process must start to load its libraries."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtc.environment import child_environment
from trtc.errors import BuildError

Module = Any  # tensorrt or tensorrt_rtx: neither has types


@dataclass(frozen=True)
class Flavour:
    """One TensorRT. ``adds_plugins``: its network has ``add_plugin_v3``; else plugins enter through the ONNX parser."""

    name: str  # of the target
    title: str
    package: str  # Python module and distribution
    install: str  # what brings it
    adds_plugins: bool
    libraries: str = ""  # module that holds the libraries, where they must be linked
    linked: tuple[str, ...] = ()  # names that the wheel lacks, each the one with .1 at its end

    def require(self) -> None:
        """Raises BuildError with the command that installs it; imports nothing."""
        for package, install in ((self.package, self.install), ("triton", "pip install 'trtc[tensorrt-rtx]'")):
            if importlib.util.find_spec(package) is None:
                raise BuildError(
                    f"target {self.name} needs the Python package {package}, which is not installed: {install}"
                )

    @property
    def version(self) -> str:
        """Of the installed package, as in 1.7.1.116."""
        self.require()
        return importlib.metadata.version(self.package)

    def load(self) -> Module:
        """Import it. Only processes started in ``environment`` may."""
        self.require()
        return importlib.import_module(self.package)

    def environment(self, directory: Path) -> dict[str, str]:
        """Environment variables for a Python that loads it and trtc; ``directory`` takes links and must stay.

        The wheel of TensorRT-RTX has libtensorrt_rtx.so.1 alone, and its ONNX parser aborts when it cannot open
        libtensorrt_rtx.so. The dynamic linker reads LD_LIBRARY_PATH when a process starts and never again.
        """
        modules = [path for path in sys.path if path]
        found = importlib.util.find_spec(self.libraries) if self.libraries else None
        if found is None or not found.submodule_search_locations:
            return child_environment([], modules)
        libraries = Path(next(iter(found.submodule_search_locations)))
        directory.mkdir(parents=True, exist_ok=True)
        for name in self.linked:
            (directory / name).symlink_to(libraries / f"{name}.1")
        return child_environment([str(directory), str(libraries)], modules)


FLAVOURS: dict[str, Flavour] = {
    flavour.name: flavour
    for flavour in (
        Flavour(
            name="tensorrt-rtx",
            title="TensorRT for RTX",
            package="tensorrt_rtx",
            install="pip install 'trtc[tensorrt-rtx]'",
            adds_plugins=False,
            libraries="tensorrt_rtx_libs",
            linked=("libtensorrt_rtx.so",),
        ),
        Flavour(
            name="tensorrt",
            title="TensorRT",
            package="tensorrt",
            install="install TensorRT 10 and its Python bindings on the GPU's machine, or use target tensorrt-rtx",
            adds_plugins=True,
        ),
    )
}
