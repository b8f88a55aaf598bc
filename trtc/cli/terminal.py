"""What the commands print: errors, tables, sizes, progress. Results go to stdout, all else to stderr."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import typer

from trtc.errors import TrtcError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

P = ParamSpec("P")

_NO_WRAPPING = 1 << 16  # columns: what is piped is searched and cut, which folded cells would spoil


def prepare_streams() -> None:
    """A standard stream that is closed becomes an empty one, and characters that its encoding lacks print as "?"."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (open till the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@functools.cache
def stdout() -> Console:
    from rich.console import Console

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError, whose exit code ``command`` knows

    return Stdout(highlight=False, width=None if sys.stdout.isatty() else _NO_WRAPPING)


@functools.cache
def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Turns what goes wrong in a command into one red sentence and exit code 1, Ctrl-C into a quiet 130."""

    def fail(message: str) -> typer.Exit:
        print_error(message)
        return typer.Exit(1)

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except TrtcError as error:
            if kwargs.get("as_json"):
                print_json({"error": {"type": type(error).__name__, "message": str(error)}})
            raise fail(str(error)) from None
        except MemoryError as error:
            raise fail(f"out of memory ({error or 'no more could be had'}); lower the limits or free some") from None
        except KeyboardInterrupt:
            raise typer.Exit(128 + signal.SIGINT) from None
        except BrokenPipeError:  # the reader of our output has gone, as in `trtc inspect X | head`
            _discard_stdout()
            raise typer.Exit(128 + signal.SIGPIPE) from None
        except OSError as error:  # files are read and written under errors of ours
            _discard_stdout()
            raise fail(f"a standard stream cannot be read or written: {error.strerror or error}") from None

    return guarded


def _discard_stdout() -> None:
    """What is still buffered goes nowhere, so that flushing it at exit raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(message: str) -> None:
    from rich.text import Text

    with contextlib.suppress(OSError):  # nobody hears it then; the exit code tells
        stderr().print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def print_json(value: Any) -> None:
    """In ASCII where standard output is not in Unicode: JSON can spell every character so."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=not unicode))


def pairs_table(title: str, rows: list[tuple[str, str]]) -> Table:
    """A table of names and values."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"  {name}", _plain(value))
    return table


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def human_bytes(count: float) -> str:
    """``1.5 MiB``; whole bytes below 1 KiB."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


@contextmanager
def stage_progress(enabled: bool = True) -> Iterator[Callable[[str, int, int], None] | None]:
    """A callback ``(stage, done, total)`` that shows one bar per stage on stderr; None when not ``enabled``."""
    if not enabled:
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, TimeElapsedColumn(), console=stderr()) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        try:
            yield show
        except BaseException:  # what went wrong will be said; half a bar says nothing
            for task in tasks.values():
                bars.remove_task(task)
            raise


def write_stdout(text: str) -> None:
    """Stream ``text`` as it is: no wrapping, no markup, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
