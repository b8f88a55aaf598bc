"""Imports and includes point one way, and serving needs neither torch, transformers nor onnx."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny_models import save_tiny_model
from trtc.build import build_engine
from trtc.config import BuildConfig, QuantAlgo, QuantConfig

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("trtc", "model_recipes", "plugins")

# Lowest first. A module belongs to the longest prefix and may import its own layer and those before it.
PYTHON_LAYERS = (
    "trtc._core",
    "trtc.errors",
    "trtc.environment",
    "trtc.memory",
    "trtc.config",
    "trtc.checkpoint",
    "trtc.graph",
    "trtc.blocks",
    "model_recipes",
    "trtc.quantize",
    "trtc.passes",
    "trtc.engine",
    "plugins",
    "trtc.targets",
    "trtc.build",
    "trtc.runtime",
    "trtc",
    "trtc.doctor",
    "trtc.cli",
    "trtc.__main__",
)
CPP_LAYERS = (
    "common",
    "engine",
    "kernels",
    "kv_cache",
    "batch",
    "sampling",
    "backend",
    "executor",
    "plugins",
    "tensorrt",
    "bindings",
)
CPP_ELSEWHERE = {"plugins": ROOT / "plugins", "tensorrt": ROOT / "cpp/tensorrt"}  # libraries of their own
CPP_FOLDERS = {layer: CPP_ELSEWHERE.get(layer, ROOT / "cpp/src" / layer) for layer in CPP_LAYERS}

CPP_INTERFACES = ("backend/model_backend.h",)  # what policy code knows of a model; they include nothing of ours

NOT_FOR_SERVING = (
    "torch",
    "transformers",
    "onnx",
    "onnx_ir",
    "gguf",
    "safetensors",
    "tensorrt",
    "tensorrt_rtx",
    "triton",
)
SERVING_MODULES = ("trtc", "trtc.config", "trtc.engine.reader", "trtc.engine.manifest", "trtc.engine.format")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def layer_of(module: str) -> int:
    fitting = [layer for layer in PYTHON_LAYERS if module == layer or module.startswith(layer + ".")]
    return PYTHON_LAYERS.index(max(fitting, key=len))


def imports_of(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything of ours that a file imports, also inside functions; not for type checking."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            # A bare "import trtc" runs nothing that importing any module of ours does not: its names are lazy.
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name != "trtc")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write imports absolutely"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield node.lineno, full if full in MODULES or full == "trtc._core" else base
        else:
            yield from imports_of(node, module)


def ours(name: str) -> bool:
    return name.split(".")[0] in PACKAGES


@pytest.mark.parametrize("module", MODULES)
def test_python_module_imports_only_its_own_and_earlier_layers(module):
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    wrong = [
        f"line {line}: {name}"
        for line, name in imports_of(tree, module)
        if ours(name) and layer_of(name) > layer_of(module)
    ]
    assert not wrong, f"{module} is of layer {PYTHON_LAYERS[layer_of(module)]} and imports later ones: {wrong}"


def test_every_layer_of_the_list_that_exists_is_told_apart():
    assert layer_of("trtc.engine.reader") == PYTHON_LAYERS.index("trtc.engine")
    assert layer_of("trtc.build") < layer_of("trtc.runtime.llm") < layer_of("trtc") < layer_of("trtc.cli.main")
    assert layer_of("model_recipes.llama") < layer_of("trtc.passes.fuse_qkv")


def test_a_recipe_and_a_pass_know_no_target():
    for module, path in MODULES.items():
        if layer_of(module) < layer_of("trtc.targets"):
            assert not re.search(r"\bget_target\b|CpuTarget|TensorRtTarget", path.read_text(encoding="utf-8")), module


def test_recipes_and_passes_are_small_rooms():
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert not [module for module, count in lines.items() if count > 400]
    assert not [module for module, count in lines.items() if count > 120 and module.startswith("model_recipes.")]


def cpp_files() -> list[Path]:
    return sorted(path for folder in CPP_FOLDERS.values() for path in folder.glob("*.*") if path.suffix != ".py")


@pytest.mark.parametrize("path", cpp_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_cpp_file_includes_only_its_own_and_earlier_folders(path):
    layer = CPP_LAYERS.index(path.parent.name)
    for include in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
        folder = include.split("/")[0]
        if "/" not in include or folder == "trtc" or include in CPP_INTERFACES:  # beside the file, or the public API
            continue
        assert folder in CPP_LAYERS, f"{path.name} includes {include}, of no folder in the ladder"
        assert CPP_LAYERS.index(folder) <= layer, f"{path.parent.name}/{path.name} includes {include}, a later folder"


def test_cmake_and_the_tour_name_the_same_ladder_of_folders():
    (folders,) = re.findall(r"^set\(TRTC_FOLDERS (.*)\)$", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    in_source = [layer for layer in CPP_LAYERS if layer not in CPP_ELSEWHERE]
    assert [*folders.split(), "bindings"] == in_source
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| C++ (`cpp/src`) |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE) == in_source


@pytest.mark.parametrize("header", CPP_INTERFACES)
def test_interface_header_includes_nothing_of_ours(header):
    assert '#include "' not in (ROOT / "cpp/src" / header).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "cpp/include/trtc").glob("*.h")), ids=lambda path: path.name)
def test_public_header_includes_no_private_one(path):
    includes = re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    assert all(include.startswith("trtc/") for include in includes)


BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {NOT_FOR_SERVING}:
            raise ImportError(f"serving must not import {{name}}")

sys.meta_path.insert(0, Blocker())
"""


def run_blocked(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKER + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


@pytest.mark.parametrize("module", [*SERVING_MODULES, *(m for m in MODULES if m.startswith("trtc.runtime."))])
def test_serving_module_imports_without_build_packages(module):
    result = run_blocked(f"import importlib; importlib.import_module({module!r})")
    assert result.returncode == 0, result.stderr


def test_the_blocker_blocks():
    assert "serving must not import onnx" in run_blocked("import onnx").stderr


GENERATE = """
from trtc import LLM, SamplingParams
with LLM(sys.argv[1]) as llm:
    (chat,) = llm.generate([[{"role": "user", "content": "Hi"}]], SamplingParams(max_tokens=3, temperature=0.0))
    print(len(chat.outputs[0].token_ids))
"""


def test_an_engine_answers_without_build_packages(tmp_path):
    model = save_tiny_model("llama", tmp_path / "model")
    build_engine(model, tmp_path / "engine", BuildConfig(quant=QuantConfig(quant_algo=QuantAlgo.W4A8)))
    result = run_blocked(GENERATE, str(tmp_path / "engine"))
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) in (1, 2, 3)
