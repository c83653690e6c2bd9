# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire doctor`: what this machine supports, and how to fix what it lacks."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.doctor import Finding, Status, collect, exit_code, to_document, verdict
from barewire.errors import unknown

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "red"}


def doctor(
    try_xdp: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="interfaces to try AF_XDP on; may briefly interrupt their links",
            autocompletion=complete.lists(complete.interface_names),
        ),
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """Examine this machine: cores, kernel, privilege, network, software; each finding with its fix."""
    named = [name.strip() for name in try_xdp.split(",") if name.strip()]
    for name in named:
        if name not in (known := complete.interface_names()):
            raise unknown("interface", name, known)
    with progress_bar("examining this machine"):
        findings = collect(named)
    if as_json:
        print_document("doctor", to_document(findings))
    else:
        console = Console(highlight=False)
        console.print(render(findings))
        console.print(verdict(findings), markup=False)
    raise typer.Exit(exit_code(findings))


def render(findings: Iterable[Finding]) -> Table:
    """Return the findings as a table; a fix follows its problem."""
    table = Table("area", "what", "status", "detail and fix", show_lines=False)
    for finding in findings:
        text = escape(finding.detail) + (f"\n[bold]fix:[/] {escape(finding.fix)}" if finding.fix else "")
        table.add_row(finding.area, escape(finding.what), f"[{_STYLES[finding.status]}]{finding.status}[/]", text)
    return table
