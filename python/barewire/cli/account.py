# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire account`: where the bytes of a capture went."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barewire.account import account as account_for
from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.cli.report import write_page
from barewire.report.account import account_tables, summary
from barewire.report.account_page import render_account


def account(
    capture: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="capture of Ethernet frames: pcap or pcapng"),
    ],
    message_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="size of every message of the program: tells the MPI library's envelope in TCP's stream",
        ),
    ] = None,
    typical: Annotated[int, typer.Option(min=0, metavar="N", help="number of the commonest frames to show")] = 3,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="also write a page: one HTML file")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Account for the bytes of a capture: by layer, by phase of the job, by pair of hosts.

    `barewire run --capture FILE` makes one with each frame once. Phases and layers: docs/account.md.
    """
    with progress_bar("reading") as show:
        size = capture.stat().st_size if capture.is_file() else 0
        accounts = account_for(capture, message_bytes, lambda done: show(min(done, size) >> 20, size >> 20, "MiB read"))
    if output is not None:
        write_page(output, render_account(accounts, shlex.join(sys.argv)))
    if as_json:
        print_document("account", accounts.to_json(typical))
        return
    console = Console(highlight=False)
    console.print(summary(accounts))
    for table in account_tables(accounts, typical):
        console.print(table)
    for note in accounts.notes:
        console.print(f"[yellow]Note:[/] {note}", soft_wrap=True)
