"""What importing trtc, its runtime and its command line pulls in."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BUILD_ONLY = ("torch", "transformers", "onnx", "onnx_ir", "gguf", "safetensors", "trtc.build", "model_recipes")


def modules_after(statement: str) -> set[str]:
    """Names of the modules loaded by ``statement`` in a new process."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_trtc_loads_nothing_but_itself():
    loaded = modules_after("import trtc")
    assert not loaded & {"numpy", "pydantic", "tokenizers", "typer", "rich", *BUILD_ONLY}
    assert {name for name in loaded if name.startswith("trtc")} == {"trtc"}


@pytest.mark.parametrize(
    "statement", ["from trtc import LLM, SamplingParams", "import trtc.cli.run_command, trtc.runtime.llm"]
)
def test_serving_needs_nothing_that_only_building_needs(statement):
    assert not modules_after(statement) & set(BUILD_ONLY)


def test_help_needs_neither_numpy_nor_pydantic():
    loaded = modules_after("import trtc.cli.main")
    assert not loaded & {"numpy", "pydantic", "tokenizers", *BUILD_ONLY}


@pytest.mark.parametrize("statement", ["from trtc import LLM", "from trtc import _core"])
def test_a_source_tree_that_is_not_built_says_so(tmp_path, statement):
    for path in (ROOT / "trtc").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    code = f"import sys; sys.meta_path[:] = sys.meta_path[-3:]; sys.path.insert(0, {str(tmp_path)!r}); {statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {tmp_path}/trtc is trtc's source"), done.stderr


def test_every_public_name_resolves_and_an_unknown_one_does_not():
    import trtc

    for name in trtc.__all__:
        assert getattr(trtc, name) is not None
        assert name in dir(trtc)
    with pytest.raises(AttributeError, match="no attribute 'Llm'"):
        _ = trtc.Llm
