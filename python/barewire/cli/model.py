# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire model`: parameters, break points and decisions from a run's times."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from barewire.cli import complete, options
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse, unknown
from barewire.measure.recover import recover_run
from barewire.models.wire import Link
from barewire.report.decisions import decisions
from barewire.report.model import hockney_table, loggp_table, piece_notes, piece_tables
from barewire.report.mpi import TextTable, parameter_tables
from barewire.report.terminal import rich_tables
from barewire.results.confidence import as_asked
from barewire.results.fits import LatencyFit, LogpFit, fit_latency, latency_fits, logp_fits
from barewire.results.model import Model, model_of, model_of_table
from barewire.results.run import Run
from barewire.stats.confidence import CONFIDENCE
from barewire.topology.rate import check_rate, parse_rate

MODELS = ("hockney", "pieces", "logp", "loggp", "loggps", "plogp")
_LOGP_FAMILY = ("logp", "loggp", "loggps")


def model(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|TABLE.csv", help="directory of a run, or a table of times", autocompletion=complete.runs
        ),
    ],
    only: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME,NAME",
            help=", ".join(MODELS),
            show_default="all",
            autocompletion=complete.models,
        ),
    ] = None,
    subject: Annotated[str | None, options.SUBJECT] = None,
    baseline: Annotated[str | None, options.BASELINE_OR_TCP] = None,
    rate: Annotated[str | None, options.REAL_RATE] = None,
    mtu: Annotated[int, options.REAL_MTU] = Link.mtu,
    confidence: options.ConfidenceOrItsOwn = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit models to a run's times: Hockney, the LogP family, pieces with named break points; and what follows.

    --rate and --mtu describe the link of a table; a run knows its own. `barewire predict` reads what --json prints.
    """
    chosen = _chosen(only)
    share = None if confidence is None else options.read_confidence(confidence)
    if run.is_file():
        if subject is not None or baseline is not None:
            raise WrongUse("--subject and --baseline apply to runs: omit them with a table")
        rate_bit_s = None if rate is None else parse_rate(rate)
        check_rate(rate_bit_s)
        table = model_of_table(run, rate_bit_s, mtu)
        _output(as_json, chosen, table.to_json(), _table_fits(table, mtu, share or CONFIDENCE), [], [], [])
        return
    if rate is not None or mtu != Link.mtu:
        raise WrongUse("--rate and --mtu describe the link of a table; a run knows its own")
    with progress_bar("fitting") as progress:
        progress(0, 2, "latency")
        measured = _only(as_asked(recover_run(run), run, share), subject)
        fits = latency_fits(measured)
        progress(1, 2, "LogP")
        of_logp = logp_fits(measured)
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
        print_document("model", {**document, **fitted, "decisions": list(sentences)})
        return
    tables: list[TextTable] = [hockney_table(fits)] if fits and "hockney" in chosen else []
    tables += piece_tables(fits) if "pieces" in chosen else []
    tables += [loggp_table(of_logp)] if of_logp and set(chosen) & set(_LOGP_FAMILY) else []
    tables += plogp if "plogp" in chosen else []
    if not tables:
        raise WrongUse(_why_none(chosen, fits))
    console = Console(highlight=False)
    for text_table in tables:
        for table in rich_tables(text_table, console.width):
            console.print(table)
    for note in piece_notes(fits) if "pieces" in chosen else []:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    for sentence in sentences:
        console.print(f"• {escape(sentence)}", soft_wrap=True)


def _why_none(chosen: Sequence[str], fits: Sequence[LatencyFit]) -> str:
    """Say why there is none of the chosen models."""
    if not {"hockney", "pieces"} & {*chosen}:
        return "cannot say: overheads were not measured; run `barewire mpi logp`"
    return "; ".join(piece_notes(fits)) or "cannot say: no ping-pong was measured; run `barewire mpi pingpong`"


def _chosen(only: str | None) -> tuple[str, ...]:
    if only is None:
        return MODELS
    chosen = tuple(part.strip() for part in only.split(","))
    for name in chosen:
        if name not in MODELS:
            raise unknown("--model", name, MODELS)
    return chosen


def _only(run: Run, subject: str | None) -> Run:
    subjects = sorted({each.subject for each in run.series})
    if subject is not None and subject not in subjects:
        raise unknown("subject", subject, subjects)
    return run if subject is None else replace(run, series=tuple(s for s in run.series if s.subject == subject))


def _table_fits(table: Model, mtu: int, confidence: float) -> list[LatencyFit]:
    return [
        fit_latency(name, "", replace(functions["latency"].times, confidence=confidence), [], table.rate_bit_s, mtu)
        for name, functions in table.functions.items()
    ]
