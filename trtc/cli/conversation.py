"""``trtc run --chat`` at a terminal: a conversation with its history."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trtc.cli.answer import answer, show_timing
from trtc.cli.terminal import print_error, stderr, write_stdout
from trtc.errors import RequestError

if TYPE_CHECKING:
    from trtc.runtime.llm import LLM
    from trtc.runtime.sampling_params import SamplingParams

Messages = list[dict[str, str]]

_COMMAND = re.compile(r"/\w*")


def first_messages(system: str | None) -> Messages:
    return [] if system is None else [{"role": "system", "content": system}]


def converse(llm: LLM, params: SamplingParams, system: str | None) -> None:
    """Read questions and answer them until end of input. Ctrl-C ends an answer, and at the prompt the program."""
    import readline  # noqa: F401 (gives input() editing and history)

    _show_help()
    messages = first_messages(system)
    while True:
        try:
            question = input(">>> ").strip()
        except EOFError:
            write_stdout("\n")
            return
        if question == "/exit":
            return
        if question == "/new":
            messages = first_messages(system)
        elif _COMMAND.fullmatch(question):
            _show_help()
        elif question:
            messages = _turn(llm, params, [*messages, {"role": "user", "content": question}])


def _show_help() -> None:
    stderr().print("/new starts over, /exit or Ctrl-D leaves, Ctrl-C ends an answer.", style="dim")


def _turn(llm: LLM, params: SamplingParams, messages: Messages) -> Messages:
    """The conversation after the model's answer; without the question when it could not be answered."""
    said: list[str] = []

    def show(text: str) -> None:
        said.append(text)
        write_stdout(text)

    try:
        show_timing(answer(llm, messages, params, show))
    except KeyboardInterrupt:
        write_stdout("\n")
    except RequestError as error:
        print_error(f"{error}; /new starts over")
        return messages[:-1]
    return [*messages, {"role": "assistant", "content": "".join(said).strip()}]
