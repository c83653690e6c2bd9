# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire export`: a run as CSV, Markdown or SVG."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.data import Run
from barewire.errors import WrongUse
from barewire.report import words
from barewire.report.markdown import frame_markdown, run_markdown
from barewire.report.svg import svg
from barewire.report.versus import has_baseline
from barewire.results.run import Place
from barewire.results.store import write_output
from barewire.results.tables import without_lists


class Format(StrEnum):
    """A format for other programs."""

    csv = "csv"
    markdown = "markdown"
    svg = "svg"


class Table(StrEnum):
    """A table of a run."""

    series = "series"
    samples = "samples"
    comparisons = "comparisons"
    fit = "fit"


def export(
    context: typer.Context,
    run: Annotated[Path, options.RUN],
    form: Annotated[Format, typer.Option("--format", help="csv, markdown: one table; svg: every figure")] = Format.csv,
    table: Annotated[
        Table, typer.Option(help="results, raw samples, comparisons with --baseline, or fits")
    ] = Table.series,
    baseline: Annotated[str, options.BASELINE] = "tcp",
    output: Annotated[Path | None, options.EXPORT_FILE] = None,
    confidence: options.ConfidenceOrItsOwn = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a run's results as CSV or Markdown, or its figures as SVG. docs/data.md describes the columns."""
    loaded = Run.load(run, confidence=None if confidence is None else options.read_confidence(confidence))
    if form is Format.svg:
        if options.is_given(context, "table"):
            raise WrongUse("omit --table with --format svg, which writes every figure")
        if output is None:
            raise WrongUse("--format svg writes a file for each figure: name a directory with -o")
        contents = {output / f"{name}.svg": text for name, text in _figures(loaded, baseline)}
    else:
        text = _text(loaded, form, table, baseline)
        if output is None:
            if as_json:
                print_document("export", {"run": loaded.record.id, "text": text})
            else:
                typer.echo(text, nl=False)
            return
        contents = {output: text}
    for path, text in contents.items():
        write_output(path, text.encode())
    if as_json:
        print_document("export", {"run": loaded.record.id, "files": [str(path) for path in contents]})
    else:
        typer.echo("\n".join(str(path) for path in contents))


def _text(run: Run, form: Format, table: Table, baseline: str) -> str:
    if form is Format.markdown and table is Table.series:
        return run_markdown(run.record)
    frame = _frame(run, table, baseline)
    if form is Format.markdown:
        return frame_markdown(without_lists(frame))
    return without_lists(frame).write_csv()


def _frame(run: Run, table: Table, baseline: str) -> pl.DataFrame:
    match table:
        case Table.series:
            return run.series()
        case Table.samples:
            return run.samples
        case Table.comparisons:
            return run.compare(baseline)
        case Table.fit:
            return run.fit()


def _figures(run: Run, baseline: str) -> Iterator[tuple[str, str]]:
    """Return name and SVG of each figure: medians by message size, and ratios if the run has the baseline."""
    tables: dict[tuple[Place, str], int] = {}
    for series in run.record.series:
        if series.median is not None and series.message_bytes:
            tables[series.place, series.variant] = tables.get((series.place, series.variant), 0) + 1
    if not tables:
        raise WrongUse(f"{run.directory} has no results by message size, so no figures")
    for place, variant in tables:
        coordinates = {**place._asdict(), "variant": variant}
        title = ", ".join(filter(None, (words.title_of(place), variant)))
        name = re.sub(r"[^a-z0-9.]+", "-", "-".join(str(part) for part in (*place, variant) if part).lower())
        yield name, svg(run.figure("size", **coordinates), title)
        if has_baseline(run.record, baseline):
            try:
                ratios = run.figure("ratio", baseline=baseline, **coordinates)
            except WrongUse:
                # This table has no series of the baseline.
                continue
            yield f"{name}-ratio", svg(ratios, f"{title}, ratio to {baseline}")
