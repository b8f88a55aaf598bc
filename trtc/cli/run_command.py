"""``trtc run``: text from an engine, streamed to the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtc.cli.answer import answer, show_timing
from trtc.cli.conversation import converse, first_messages
from trtc.cli.terminal import command, print_json, write_stdout

if TYPE_CHECKING:
    from trtc.runtime.inputs import PromptInput
    from trtc.runtime.llm import LLM

_WHAT = "What to say"
_SAMPLING = "Sampling"
_RUNNING = "Running"


@command
def run(
    engine: Annotated[Path, typer.Argument(metavar="ENGINE", help="Engine directory.", show_default=False)],
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", help="Text to continue; with --chat, one question.", rich_help_panel=_WHAT),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Talk through the model's chat template.", rich_help_panel=_WHAT)
    ] = False,
    system: Annotated[str | None, typer.Option(help="With --chat: the system message.", rich_help_panel=_WHAT)] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Longest output; less where the engine has no room.", rich_help_panel=_SAMPLING)
    ] = 512,
    min_tokens: Annotated[
        int | None, typer.Option(min=0, help="Shortest output: nothing ends it before.", rich_help_panel=_SAMPLING)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0, the default: greedy.", rich_help_panel=_SAMPLING)
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="Sample from the k most likely tokens; 0: all.", rich_help_panel=_SAMPLING),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            max=1.0, help="Sample from the fewest tokens that have this probability.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Sample from tokens of at least this probability relative to the most likely.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="0, the default; one seed gives one answer every time.", rich_help_panel=_SAMPLING),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Over 1: against tokens of prompt and output.", rich_help_panel=_SAMPLING),
    ] = None,
    presence_penalty: Annotated[
        float | None, typer.Option(help="Over 0: against tokens of the output.", rich_help_panel=_SAMPLING)
    ] = None,
    frequency_penalty: Annotated[
        float | None,
        typer.Option(help="Over 0: against tokens of the output, for each time.", rich_help_panel=_SAMPLING),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text to stop before. Repeatable.", rich_help_panel=_SAMPLING)
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on past end tokens.", rich_help_panel=_SAMPLING)
    ] = False,
    threads: Annotated[int, typer.Option(min=0, help="0: every usable core.", rich_help_panel=_RUNNING)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end.", rich_help_panel=_RUNNING)
    ] = False,
) -> None:
    """Generate text with ENGINE.

    --prompt continues a text, --chat talks; without either, standard input is continued. Timing goes to stderr.
    """
    if system is not None and not chat:
        raise typer.BadParameter("only with --chat", param_hint="--system")
    interactive = chat and prompt is None and sys.stdin.isatty()
    if prompt is None and not chat and sys.stdin.isatty():
        raise typer.BadParameter(
            "missing: give --prompt TEXT, --chat, or a prompt on standard input", param_hint="--prompt"
        )
    if as_json and interactive:
        raise typer.BadParameter("needs --prompt or standard input", param_hint="--json")
    from trtc.runtime.sampling_params import SamplingParams

    params = SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        stop=tuple(stop) if stop else None,
        ignore_eos=ignore_eos,
    )
    if prompt is None and not interactive:
        prompt = sys.stdin.read().rstrip("\n")
        if not prompt:
            raise typer.BadParameter("standard input is empty", param_hint="--prompt")
    with _open(engine, threads) as llm:
        if prompt is None:
            converse(llm, params, system)
        elif as_json:
            print_json(answer(llm, _input(prompt, chat, system), params, show=None).as_json())
        else:
            show_timing(answer(llm, _input(prompt, chat, system), params, show=write_stdout))


def _open(engine: Path, threads: int) -> LLM:
    from trtc.errors import EngineError
    from trtc.runtime.llm import LLM
    from trtc.runtime.model_cache import is_engine

    if not is_engine(engine):
        if engine.exists():
            raise EngineError(
                f"{engine} is not an engine; if it is a model, make one with: trtc build {engine} -o ENGINE"
            )
        raise EngineError(f"{engine} does not exist; make an engine with: trtc build MODEL -o {engine}")
    return LLM(engine, num_threads=threads)


def _input(prompt: str, chat: bool, system: str | None) -> PromptInput:
    return [*first_messages(system), {"role": "user", "content": prompt}] if chat else prompt
