"""``trtc doctor``: what this machine can build and run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trtc.cli.terminal import command, print_json, stdout

_STYLES = {"ready": "green", "absent": "dim", "broken": "bold red"}


@command
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """Show what this machine can build and run, and what is missing for more.

    Exits with 1 when something that should work does not; a part that is not installed is no fault.
    """
    from trtc.doctor import examine

    findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            detail = Text(finding.detail)
            if finding.missing:
                detail.append(f"; {finding.missing}", style="dim")
            table.add_row(finding.part, Text(finding.verdict, style=_STYLES[finding.verdict]), detail)
        stdout().print(table)
    if any(finding.verdict == "broken" for finding in findings):
        raise typer.Exit(1)
