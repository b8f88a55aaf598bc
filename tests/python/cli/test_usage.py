"""Help, wrong usage and failures: what the exit code is, and what is printed where."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import trtc
from tests.python.cli.running import trtc as run_trtc
from trtc.cli.main import app
from trtc.config import BuildConfig


def invoke(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    "arguments", [["--help"], ["build", "-h"], ["run", "--help"], ["inspect", "--help"], ["doctor", "-h"]]
)
def test_help_succeeds(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0 and "Usage" in result.stdout


def test_every_option_says_what_it_does():
    for command in typer.main.get_command(app).commands.values():
        for option in command.params:
            assert option.help, f"trtc {command.name} {option.name}"


def test_version_is_the_packages():
    assert invoke("--version").stdout == f"trtc {trtc.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["build"],
        ["build", "model"],
        ["build", "model", "-o", "engine", "--quant", "w3a16"],
        ["build", "model", "-o", "engine", "--group-size", "7"],
        ["build", "model", "-o", "engine", "--max-batch-size", "0"],
        ["build", "model", "-o", "engine", "--dtype", "float8"],
        ["run"],
        ["run", "engine", "--max-tokens", "none"],
        ["run", "engine", "--prompt", "hi", "--system", "be brief"],
        ["run", "engine", "--temperature", "-1", "--prompt", "hi"],
        ["inspect"],
        ["inspect", "engine", "--colour"],
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2 and "Usage" in result.stderr and result.stdout == ""


def test_an_empty_prompt_on_standard_input_is_wrong_usage():
    result = invoke("run", "engine", stdin="\n")
    assert result.exit_code == 2 and "standard input is empty" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["build", "/no/such/model", "-o", "{tmp}/engine"], "/no/such/model does not exist"),
        (["build", "/no/such/model", "-o", "{tmp}/engine", "--tp-size", "2"], "yet; use tp_size 1"),
        (
            ["build", "/no/such/model", "-o", "{tmp}/engine", "--dump-graph", "fusion"],
            "dump_graph names 'fusion', which is no phase",
        ),
        (["build", "/no/such/model", "-o", "{tmp}/engine", "--max-batch-size", "600"], "exceeds max_num_tokens 512"),
        (
            ["run", "{tmp}", "--prompt", "hi"],
            "{tmp} is not an engine; if it is a model, make one with: trtc build {tmp} -o ENGINE",
        ),
        (
            ["run", "{tmp}/none", "--prompt", "hi"],
            "does not exist; make an engine with: trtc build MODEL -o {tmp}/none",
        ),
        (["build", "m", "-o", "{tmp}/engine", "--dtype", "float16"], "target cpu has no dtype float16; choose float32"),
        (["build", "m", "-o", "{tmp}/engine", "--sm", "89"], "sm is 89, a GPU architecture: target cpu has none"),
        (
            ["build", "m", "-o", "{tmp}/engine", "--target", "tensorrt-rtx"],
            "needs sm, the GPU's architecture; choose",
        ),
        (["run", "{tmp}", "--prompt", "hi", "--top-p", "0"], "SamplingParams.top_p: got 0.0"),
        (["inspect", "{tmp}"], "is not an engine directory"),
        (["inspect", "{tmp}/none"], "does not exist"),
    ],
)
def test_a_failure_is_one_sentence_on_stderr_and_exit_code_1(tmp_path, arguments, sentence):
    result = invoke(*[argument.format(tmp=tmp_path) for argument in arguments])
    assert result.exit_code == 1 and result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert sentence.format(tmp=tmp_path) in line and "Traceback" not in result.stderr


def test_with_json_a_failure_is_an_object_on_stdout_too(tmp_path):
    result = invoke("inspect", tmp_path, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["type"] == "EngineError" and error["message"] in result.stderr.replace("\n", "")


def test_defaults_of_build_are_those_of_the_settings():
    (command,) = [info for info in app.registered_commands if info.callback.__name__ == "build"]
    defaults = command.callback.__wrapped__.__defaults__
    names = command.callback.__wrapped__.__code__.co_varnames[: command.callback.__wrapped__.__code__.co_argcount]
    options = dict(zip(names[-len(defaults) :], defaults, strict=True))
    config = BuildConfig()
    for name in ("target", "dtype", "kv_cache_dtype", "max_batch_size", "max_num_tokens", "max_seq_len"):
        assert options[name] == getattr(config, name), name
    assert int(options["tokens_per_block"]) == config.tokens_per_block
    assert (options["quant"], options["group_size"]) == (config.quant.quant_algo.value, None)  # the settings' own
    assert options["tp_size"] == config.mapping.tp_size


@pytest.mark.parametrize("module", ["typer", "trtc.cli.main", "trtc.cli.run_command"])
def test_ctrl_c_is_quiet_while_modules_are_imported(module):
    code = f"""
import sys
class Interrupted:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted)
from trtc.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_module_is_the_command():
    done = run_trtc("--version")
    assert (done.returncode, done.stdout) == (0, f"trtc {trtc.__version__}\n")
