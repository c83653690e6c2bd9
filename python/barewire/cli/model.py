# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire model`: parameters, break points and decisions from a run's times."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from barewire.errors import WrongUse
from barewire.lab import parse_rate
from barewire.measure import recover_run
from barewire.report.decisions import decisions
from barewire.report.model import hockney_table, loggp_table, piece_notes, piece_tables
from barewire.report.mpi import TextTable, parameter_tables
from barewire.report.terminal import rich_tables
from barewire.results import Run
from barewire.results.fits import LatencyFit, LogpFit, fit_latency, latency_fits, logp_fits
from barewire.results.model import Model, model_of, model_of_table

MODELS = ("hockney", "pieces", "logp", "loggp", "loggps", "plogp")
_LOGP_FAMILY = ("logp", "loggp", "loggps")


def model(
    run: Annotated[Path, typer.Argument(metavar="RUN|TABLE.csv", help="directory of a run, or a table of times")],
    only: Annotated[
        str | None, typer.Option("--model", help=f"only these: {', '.join(MODELS)}; several with commas")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="only this subject")] = None,
    baseline: Annotated[str | None, typer.Option(help="subject or fabric to compare with; tcp unless given")] = None,
    rate: Annotated[str | None, typer.Option(help="of a table: the rate of its link, such as 1gbit")] = None,
    mtu: Annotated[int, typer.Option(help="of a table: the MTU of its link")] = 1500,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document, which predict reads")] = False,
) -> None:
    """Fit models to a run's times: Hockney, the LogP family, pieces with named break points; and what follows."""
    chosen = _chosen(only)
    if run.is_file():
        if subject is not None or baseline is not None:
            raise WrongUse("--subject and --baseline apply to runs: omit them with a table")
        table = model_of_table(run, None if rate is None else parse_rate(rate), mtu)
        _output(as_json, chosen, table.to_json(), _table_fits(table, mtu), [], [], [])
        return
    if rate is not None:
        raise WrongUse("--rate and --mtu describe the link of a table; a run knows its own")
    measured = _only(recover_run(run), subject)
    fits, of_logp = latency_fits(measured), logp_fits(measured)
    if not fits and not of_logp:
        raise WrongUse(f"{run} has no times of messages: measure pingpong with three sizes or more, or logp")
    notes = [] if measured.complete else [f"this run is incomplete (stopped by {measured.stopped_by})"]
    document = model_of([measured]).to_json()
    plogp = [table for test, _, table in parameter_tables(measured) if test == "logp"]
    _output(as_json, chosen, document, fits, of_logp, plogp, [*notes, *decisions(measured, fits, baseline)])


def _output(
    as_json: bool,
    chosen: Sequence[str],
    document: dict[str, Any],
    fits: Sequence[LatencyFit],
    of_logp: Sequence[LogpFit],
    plogp: Sequence[TextTable],
    sentences: Sequence[str],
) -> None:
    if as_json:
        fitted = {"latency": [fit.to_json() for fit in fits], "logp": [fit.to_json() for fit in of_logp]}
        typer.echo(json.dumps({**document, **fitted, "decisions": list(sentences)}, allow_nan=False))
        return
    tables: list[TextTable] = [hockney_table(fits)] if fits and "hockney" in chosen else []
    tables += piece_tables(fits) if "pieces" in chosen else []
    tables += [loggp_table(of_logp)] if of_logp and set(chosen) & set(_LOGP_FAMILY) else []
    tables += plogp if "plogp" in chosen else []
    if not tables:
        raise WrongUse("cannot say: overheads were not measured; run `barewire mpi logp`")
    console = Console(highlight=False)
    for text_table in tables:
        for table in rich_tables(text_table, console.width):
            console.print(table)
    for note in piece_notes(fits) if "pieces" in chosen else []:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    for sentence in sentences:
        console.print(f"• {escape(sentence)}", soft_wrap=True)


def _chosen(only: str | None) -> tuple[str, ...]:
    if only is None:
        return MODELS
    chosen = tuple(part.strip() for part in only.split(","))
    unknown = [name for name in chosen if name not in MODELS]
    if unknown:
        raise WrongUse(f"--model takes {', '.join(MODELS)}, not '{unknown[0]}'")
    return chosen


def _only(run: Run, subject: str | None) -> Run:
    subjects = sorted({each.subject for each in run.series})
    if subject is not None and subject not in subjects:
        raise WrongUse(f"the run has no subject {subject!r}; it has {', '.join(subjects) or 'none'}")
    return run if subject is None else replace(run, series=tuple(s for s in run.series if s.subject == subject))


def _table_fits(table: Model, mtu: int) -> list[LatencyFit]:
    return [
        fit_latency(name, "", functions["latency"].times, [], table.rate_bit_s, mtu)
        for name, functions in table.functions.items()
    ]
