# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run's results as Markdown tables, for issues, wikis and papers; pure."""

import shlex
from collections.abc import Iterator, Sequence

import polars as pl

from barewire.report import mpi, words
from barewire.report.findings import warnings
from barewire.report.mpi import TextTable
from barewire.results.laws import laws_of
from barewire.results.run import Run, Series


def run_markdown(run: Run) -> str:
    """Return all tables of a run: per test one of its series, then parameters, phases and laws, then the warnings."""
    parts = [f"## {run.id}", f"`{shlex.join(run.command)}`"]
    for place, series in mpi.by_place(run):
        parts += [f"### {words.title_of(place)}", _series_table(sorted(series, key=lambda each: each.row.order))]
    for text_table in _text_tables(run):
        parts += [f"### {text_table.title}", table(text_table.headings, text_table.rows), *text_table.notes]
    notes = warnings(run)
    if notes:
        parts += ["### Warnings", "\n".join(f"- {_escaped(note)}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def frame_markdown(frame: pl.DataFrame) -> str:
    """Return any frame as one table."""
    rows = [[_cell(value) for value in row] for row in frame.iter_rows()]
    return table(frame.columns, rows) + "\n"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first column is left-aligned, the others right-aligned."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _series_table(series: Sequence[Series]) -> str:
    unit = words.unit_name(series[0].unit)
    headings = [
        *(
            "message",
            "subject",
            f"median, {unit}",
            words.interval_heading(series[0].confidence),
            f"p99, {unit}",
            "launches",
            "samples",
        ),
        *(["share of the limit"] if any(each.fraction_of_limit is not None for each in series) else []),
    ]
    rows = []
    for each in series:
        cells = [words.row_name(each.row, each.place), each.subject, words.number(each.median, 4)]
        cells += [words.interval(each.interval, 4), words.number(each.p99, 4), str(each.launches), str(each.samples)]
        if len(headings) > len(cells):
            marks = "".join(f" {words.MARKS[key][0]}" for key in words.marks_of(each))
            share = "–" if each.fraction_of_limit is None else f"{each.fraction_of_limit:.2f}"
            cells.append(share + marks)
        rows.append(cells)
    return table(headings, rows)


def _text_tables(run: Run) -> Iterator[TextTable]:
    yield from (text_table for _, _, text_table in mpi.parameter_tables(run))
    yield from (text_table for _, _, text_table, _ in mpi.phase_tables(run))
    yield from mpi.speedup_tables(run)
    yield from mpi.law_tables(run, laws_of(run))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
