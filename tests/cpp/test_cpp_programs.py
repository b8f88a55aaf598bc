"""libtrtc without Python: the public headers, the example over them, and what a step of the CPU backend allocates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import trtc
from tests.tiny_models import save_tiny_model
from trtc import _core
from trtc.build import build_engine
from trtc.config import BuildConfig, QuantAlgo, QuantConfig

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(_core.__file__).parent  # installed beside the extension modules
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAMS / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_tiny_model("llama", tmp_path_factory.mktemp("checkpoint") / "model"))


def engine_of(checkpoint: Path, directory: Path, algo: QuantAlgo = QuantAlgo.NONE) -> Path:
    settings = BuildConfig(quant=QuantConfig(quant_algo=algo), max_batch_size=4, max_num_tokens=128)
    build_engine(checkpoint, directory / "engine", settings)
    return directory / "engine"


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("header", sorted((ROOT / "cpp/include/trtc").glob("*.h")), ids=lambda path: path.name)
def test_public_header_compiles_alone(header: Path) -> None:
    command = [COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}/cpp/include"]
    command += ["-include", str(header), "-x", "c++", os.devnull]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_example_gives_the_tokens_that_python_gets(checkpoint: Path, tmp_path: Path) -> None:
    engine, prompt = engine_of(checkpoint, tmp_path), [5, 6, 7]
    result = run("_test_generate", engine, *prompt)
    assert result.returncode == 0, result.stderr
    with trtc.LLM(engine) as llm:
        params = trtc.SamplingParams(max_tokens=16, temperature=0.0, end_id=-1)
        expected = llm.generate([prompt], params)[0].outputs[0].token_ids
    assert [int(line) for line in result.stdout.split()] == expected


def test_example_says_what_is_wrong(checkpoint: Path, tmp_path: Path) -> None:
    engine = engine_of(checkpoint, tmp_path)
    for arguments, code, message in [
        ((), 2, "usage: "),
        ((tmp_path / "nothing", 1), 1, "error: .*nothing/rank0.engine cannot be opened"),
        ((engine, 10**6), 1, r"error: input_token_ids\[0\] is 1000000"),
    ]:
        result = run("_test_generate", *arguments)
        assert result.returncode == code
        assert re.match(message, result.stderr), result.stderr


@pytest.mark.parametrize("algo", list(QuantAlgo), ids=lambda algo: algo.value)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_step_allocates_nothing(checkpoint: Path, tmp_path: Path, algo: QuantAlgo, threads: int) -> None:
    result = run("_test_step_allocations", engine_of(checkpoint, tmp_path, algo), threads)
    assert result.returncode == 0, result.stderr
    counts = dict(line.split() for line in result.stdout.splitlines())
    assert int(counts.pop("load")) > 0, "nothing is counted"
    assert counts == {"prefill": "0", "decode": "0", "one": "0"}
