# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi applications`: unmodified MPI programs of Debian's over Barewire and another fabric, checked."""

import json
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.applications import APPLICATIONS, SITES, Application, Campaign, Plan, Results, Skipped, find_programs
from barewire.applications.results import geometric_means, markdown, number, ratio_text
from barewire.cli import complete, options
from barewire.cli.directories import results_directory
from barewire.cli.output import print_document
from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, unknown
from barewire.measure.environment import describe_machine
from barewire.results.store import write_output

DOCUMENT = "applications.json"
_SLOWER, _FASTER = 1.02, 0.98


def applications(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM…]",
            help=f"some of {', '.join(APPLICATIONS)}",
            show_default="all",
            autocompletion=complete.lists(lambda: APPLICATIONS),
        ),
    ] = None,
    testbeds: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help=f"{', '.join(SITES)}, or all",
            autocompletion=complete.lists(lambda: (*SITES, "all")),
        ),
    ] = "pair",
    busy: Annotated[int, typer.Option(min=0, metavar="N", help="busy processes on each core beside")] = 0,
    launches: Annotated[
        int,
        typer.Option(
            "--launches",
            min=1,
            metavar="N",
            help="launches of each program over each fabric, after one warm-up",
            rich_help_panel=options.EFFORT,
        ),
    ] = 7,
    limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="time after which a launch is terminated with all its processes"),
    ] = 120.0,
    only_list: Annotated[
        bool, typer.Option("--list", help="list the programs, and whether they are installed, and measure nothing")
    ] = False,
    to_markdown: Annotated[Path | None, options.MARKDOWN] = None,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Launch unmodified MPI programs of Debian's in turns over Barewire and over TCP, and show the slowest row first.

    Each launch's result is checked. On one host the other fabric is shared memory. Programs that are not installed are
    left out, and named.
    """
    chosen = _chosen(names or list(APPLICATIONS), APPLICATIONS, "application")
    places = _chosen(list(SITES) if testbeds == "all" else testbeds.split(","), SITES, "testbed")
    installed, skipped = find_programs(chosen)
    if only_list:
        _list(chosen, skipped, as_json)
        return
    plan = Plan(tuple(installed), tuple(places), launches, secrets.randbits(32) if seed is None else seed, busy, limit)
    for skip in skipped:
        typer.echo(f"SKIPPED {skip.application}: {skip.reason}", err=True)
    if not installed:
        raise MachineCannot("none of these programs is installed; `barewire mpi applications --list` says how to")
    with (
        results_directory(output, "applications") as directory,
        tempfile.TemporaryDirectory(prefix="barewire-applications-") as folder,
    ):
        campaign = Campaign(plan, Path(folder), lambda line: typer.echo(line, err=True))
        stopped: BaseException | None = None
        try:
            campaign.run()
        except (BarewireError, KeyboardInterrupt) as error:
            if not campaign.launches:
                raise
            stopped = error
        results = Results(plan, describe_machine(), tuple(campaign.launches), tuple(skipped), _versions(installed))
        text = json.dumps(results.document(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        write_output(directory / DOCUMENT, text.encode(errors="backslashreplace"))
        if to_markdown is not None:
            write_output(to_markdown, markdown(results).encode(errors="backslashreplace"))
        if as_json:
            print_document("mpi applications", results.document())
        else:
            _print(results)
            typer.echo(f"every launch: {directory / DOCUMENT}")
        if stopped is not None:
            raise stopped
    if failures := len(results.failures):
        raise MeasurementFailed(f"{failures} launch{'es' if failures != 1 else ''} failed; see above")


def _chosen(names: Sequence[str], known: Mapping[str, Any], kind: str) -> list[Any]:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return [known[name] for name in dict.fromkeys(names)]


def _versions(installed: Sequence[Application]) -> dict[str, str]:
    packages = sorted({package for application in installed for package in application.packages} | {"libopenmpi3"})
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *packages]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return {}
    return dict(line.split(" ", 1) for line in completed.stdout.splitlines() if " " in line)


def _print(results: Results) -> None:
    console = Console(highlight=False)
    table = Table()
    for heading in ("program", "figure", "testbed", "other fabric", "Barewire", "ratio of times", "verdict"):
        table.add_column(heading, overflow="fold")
    for row in results.rows:
        ours, theirs = (f"{number(value)} {row.unit}" for value in row.medians)
        colour = "red" if row.ratio > _SLOWER else "green" if row.ratio < _FASTER else "default"
        ratio = f"[{colour}]{escape(ratio_text(row))}[/]"
        table.add_row(row.application, row.figure, row.site, f"{theirs} ({row.rival})", ours, ratio, row.verdict)
    console.print(table)
    for site, mean in geometric_means(results.rows).items():
        programs = len({row.application for row in results.rows if row.site == site})
        console.print(f"{site}: geometric mean over {programs} program{'s' if programs != 1 else ''} {mean:.3f}")
    for launch in results.failures:
        round_name = "warm-up" if launch.round == 0 else f"launch {launch.round}"
        message = f"FAILED {launch.site} {launch.application} {launch.fabric} ({round_name}): {launch.error}"
        console.print(escape(message), style="red")
    if results.skipped:
        names = ", ".join(skip.application for skip in results.skipped)
        console.print(f"{len(results.skipped)} SKIPPED, because they are not installed: {names}")


def _list(chosen: Sequence[Application], skipped: Sequence[Skipped], as_json: bool) -> None:
    missing = {skip.application: skip.reason for skip in skipped}
    if as_json:
        entries = [
            {
                "name": application.name,
                "what": application.what,
                "pattern": application.pattern,
                "packages": list(application.packages),
                "figures": [figure.name for figure in application.figures],
                "missing": missing.get(application.name),
            }
            for application in chosen
        ]
        print_document("mpi applications", {"applications": entries})
        return
    table = Table()
    for heading in ("program", "what it is", "how it communicates", "installed"):
        table.add_column(heading, overflow="fold")
    for application in chosen:
        state = escape(missing.get(application.name, "yes"))
        table.add_row(application.name, application.what, application.pattern, state)
    Console(highlight=False).print(table)
