# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire compare`: which subject is faster, by how much, and with what certainty."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from barewire.errors import WrongUse
from barewire.measure import recover_run
from barewire.report.terminal import versus_tables
from barewire.report.versus import MARGIN, Versus, compare_in_run, compare_runs, compare_variants
from barewire.results import Run


def compare(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="directory of a run")],
    second_run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="second run to compare with")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="subject, or fabric of each MPI library, to compare with in one run; tcp unless given"),
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="variant to compare the others of its test with, in one run")
    ] = None,
    margin: Annotated[float, typer.Option(help="difference that does not matter: 0.02 is 2 %")] = MARGIN,
    across_environments: Annotated[
        bool, typer.Option("--across-environments", help="compare runs of different machines or settings")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Report which subject is faster, by how much and with what certainty, in one run or between two."""
    if not 0 < margin < 1:
        raise WrongUse(f"--margin must be a share between 0 and 1 (0.02 is 2 %), not {margin}")
    if second_run is not None and baseline is not None:
        raise WrongUse("--baseline compares subjects of one run; with two runs each subject is compared with itself")
    if variant is not None and (second_run is not None or baseline is not None):
        raise WrongUse("--variant compares variants of each subject of one run: omit the other run and --baseline")
    first = recover_run(run)
    if variant is not None:
        comparisons = compare_variants(first, variant, margin=margin)
        a_name, b_name, runs = None, None, [first]
    elif second_run is None:
        comparisons = compare_in_run(first, baseline or "tcp", margin=margin)
        a_name, b_name, runs = None, None, [first]
    else:
        second = recover_run(second_run)
        comparisons = compare_runs(first, second, margin=margin, across_environments=across_environments)
        a_name, b_name, runs = first.id, second.id, [first, second]
    if as_json:
        typer.echo(json.dumps(_document(runs, comparisons, margin), allow_nan=False))
        return
    if not comparisons:
        raise WrongUse(f"{run} contains nothing to compare: no other subject was measured at the same sizes")
    _print(comparisons, runs, margin, a_name, b_name)


def _document(runs: list[Run], comparisons: list[Versus], margin: float) -> dict[str, object]:
    return {
        "schema": "barewire-compare/1",
        "runs": [run.id for run in runs],
        "margin": margin,
        "comparisons": [comparison.to_json() for comparison in comparisons],
    }


def _print(comparisons: list[Versus], runs: list[Run], margin: float, a_name: str | None, b_name: str | None) -> None:
    console = Console(highlight=False)
    for table in versus_tables(comparisons, a_name=a_name, b_name=b_name):
        console.print(table)
    console.print(
        f"[dim]Ratio of medians with its 95 % bootstrap interval; p values between launches, corrected over sizes "
        f"(Holm). No difference: the interval lies within ±{margin:.1%}.[/]"
    )
    for run in runs:
        if not run.complete:
            console.print(f"[yellow]{escape(run.id)} is incomplete (stopped by {escape(str(run.stopped_by))}).[/]")
