"""The ``trtc`` command. Heavy imports happen inside the commands, so that ``trtc --help`` answers at once."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

import trtc
from trtc.cli.build_command import build
from trtc.cli.doctor_command import doctor
from trtc.cli.inspect_command import inspect
from trtc.cli.run_command import run
from trtc.cli.terminal import prepare_streams

app = typer.Typer(
    name="trtc",
    help="Compile language models to engines and run them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(build)
app.command()(run)
app.command()(inspect)
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trtc {trtc.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Compile language models to engines and run them.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    """Run the command line. SIGTERM unwinds like Ctrl-C, so that a build stopped by either leaves nothing behind."""
    signal.signal(signal.SIGTERM, _terminate)
    prepare_streams()
    app()
