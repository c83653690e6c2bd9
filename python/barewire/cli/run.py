# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run`: an MPI program over a fabric of one's choice, in a lab or on real hosts."""

import json
import os
import socket
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.cli.lab import OnOff
from barewire.cli.labs import LAB_HELP, choose_lab
from barewire.cli.places import places_of
from barewire.cli.sdn_client import Sdn, SdnToken, client_if_wanted
from barewire.errors import MachineCannot, WrongUse
from barewire.lab import Lab, LinkSpec, parse_loss, parse_rate
from barewire.mpi import explain, start
from barewire.mpi.announcement import announcement
from barewire.mpi.fabrics import FABRICS, PROVIDER, TOKEN, Wishes
from barewire.mpi.job import Job
from barewire.mpi.libraries import find_library, library_of_program
from barewire.mpi.placement import spread
from barewire.mpi.prepare import prepare
from barewire.sdn.api.client import Announced, Client

_LAB = "In a lab"
_HOSTS = "On real hosts"
_PATH = "The path"
_LINES_SHOWN = 12


def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM…", help="the program and its arguments")],
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="how many ranks")],
    fabric: Annotated[str, typer.Option(help=FABRICS, rich_help_panel=_PATH)] = PROVIDER,
    library: Annotated[
        str | None,
        typer.Option(
            help="MPI library by name or folder; only where the program does not say it", rich_help_panel=_PATH
        ),
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="Ethernet interface; unless given the first that is up", rich_help_panel=_PATH)
    ] = None,
    link: Annotated[str | None, typer.Option(help="of barewire: packet, xdp", rich_help_panel=_PATH)] = None,
    wait: Annotated[
        str | None, typer.Option(help="how barewire waits: spin, adaptive, block", rich_help_panel=_PATH)
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option(
            help="while the program computes: of barewire auto (a helper thread), manual; of the library thread",
            rich_help_panel=_PATH,
        ),
    ] = None,
    lab: Annotated[str | None, typer.Option(help=LAB_HELP, rich_help_panel=_LAB)] = None,
    rate: Annotated[str, typer.Option(help="each link's rate, such as 1gbit", rich_help_panel=_LAB)] = "unshaped",
    mtu: Annotated[int, typer.Option(help="each link's MTU in bytes", rich_help_panel=_LAB)] = 1500,
    loss: Annotated[str, typer.Option(help="share of frames that are lost, such as 0.1%", rich_help_panel=_LAB)] = "0",
    offloads: Annotated[OnOff, typer.Option(help="offloads of the links", rich_help_panel=_LAB)] = OnOff.off,
    hosts: Annotated[
        str | None, typer.Option(help="a,b or a:4,b:4; also of a lab; else this one", rich_help_panel=_HOSTS)
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="a file with lines a, a:4 or a slots=4", rich_help_panel=_HOSTS)
    ] = None,
    sdn: Sdn = None,
    sdn_token: SdnToken = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="first find out which path is really taken; a table on standard error")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="print the command line, start no rank")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="what --explain and --dry-run print, as JSON")] = False,
) -> None:
    """Run an MPI program over plain Ethernet frames, or over another fabric to compare.

    Finds the MPI library that the program was built with, tells it which path to take, and starts it with that
    library's own launcher. The exit code is the program's. On a network with Barewire's controller, say --sdn: the
    job is announced there while it runs.
    """
    command = program[1:] if program[0] == "--" else program
    wishes = Wishes(fabric, interface, link, wait, progress)
    chosen = None if library is None else find_library(library)
    used, reason = library_of_program(command[0], chosen, os.environ)
    if lab is None and (rate, mtu, loss, offloads) != ("unshaped", 1500, "0", OnOff.off):
        raise WrongUse("--rate, --mtu, --loss and --offloads are of a lab's links: give --lab, too")
    if hosts is not None and hostfile is not None:
        raise WrongUse("--hosts and --hostfile both say where: give one of them")
    controller = client_if_wanted(sdn, sdn_token)
    links = LinkSpec(parse_rate(rate), mtu, offloads is OnOff.on, parse_loss(loss))
    chosen_lab = None if lab is None else choose_lab(lab, links)
    places = places_of(hosts, hostfile, None if chosen_lab is None else chosen_lab.topology)
    with nullcontext() if chosen_lab is None else chosen_lab.entered() as running:
        job = prepare(used, wishes, spread(ranks, places), command, running, carried=chosen is not None)
        if dry:
            _print_dry(job, wishes, reason, running, explained, as_json)
            return
        if explained:
            _explain(job, wishes, reason, running, as_json)
        with _announced(job, fabric, controller):
            raise typer.Exit(start.run(job, running))


def _announced(job: Job, fabric: str, controller: Client | None) -> AbstractContextManager[object]:
    if controller is None:
        return nullcontext()
    return Announced(
        controller, announcement(job, fabric, socket.gethostname()), lambda text: typer.echo(text, err=True)
    )


def _print_dry(job: Job, wishes: Wishes, reason: str, lab: Lab | None, explained: bool, as_json: bool) -> None:
    if as_json:
        document = {
            "command": job.command(os.environ),
            "environment": {name: value for name, value in job.environment().items() if name != TOKEN},
            "path": [asdict(row) for row in explain.rows(job, wishes, reason, None)],
        }
        typer.echo(json.dumps(document))
        return
    if explained:
        _print_table(explain.rows(job, wishes, reason, None))
    typer.echo(job.shell_line(os.environ))
    if lab is not None:
        typer.echo("# inside the first host of a lab that this run would make, or of the one that stands")


def _explain(job: Job, wishes: Wishes, reason: str, lab: Lab | None, as_json: bool) -> None:
    evidence, output = start.witness(job, lab)
    table = explain.rows(job, wishes, reason, evidence)
    if as_json:
        typer.echo(json.dumps({"path": [asdict(row) for row in table]}), err=True)
    else:
        _print_table(table)
    wrong = [f"{row.what}: {row.wrong}" for row in table if row.wrong]
    if wrong:
        said = "\n".join(f"  {line}" for line in output.strip().splitlines()[-_LINES_SHOWN:])
        raise MachineCannot(f"the path is not the one asked for: {'; '.join(wrong)}. What was said last:\n{said}")


def _print_table(rows: list[explain.Row]) -> None:
    table = Table()
    for heading in ("what", "path taken", "decided by", "known by"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        seen = f"[red]NOT as asked: {escape(row.wrong)}[/]" if row.wrong else escape(row.seen)
        table.add_row(row.what, escape(row.taken), escape(row.source), seen)
    Console(stderr=True, highlight=False).print(table)
