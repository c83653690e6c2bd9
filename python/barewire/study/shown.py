# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the page shows of steps besides claims: what `bench host` measured, and the tables that the plan asks for.

These are parameters of models, speed-ups and the accounts of captures, with published values beside them.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from barewire.errors import WrongUse
from barewire.models.times import Times
from barewire.report.account_page import layers_table
from barewire.report.host import tables_of
from barewire.report.model import hockney_table, loggp_table, piece_notes, piece_tables
from barewire.report.mpi import TextTable as NotedTable
from barewire.report.mpi import parameter_tables, speedup_tables
from barewire.report.profile import TextTable
from barewire.report.words import subject_name
from barewire.results.confidence import as_asked
from barewire.results.fits import latency_fits, logp_fits
from barewire.results.host import Measure, host_measures
from barewire.results.run import Run
from barewire.results.store import read_run
from barewire.study.claims import selected
from barewire.study.findings import column_in
from barewire.study.plan import Plan, StepTable
from barewire.study.steps import Record, document_of
from barewire.study.tables import as_number, factor_to, rows_in_words

_HOST = ("bench", "host")
_TITLES = {"parameters": "Parameters", "speed-ups": "Speed-up", "account": "Account"}
_NOTHING = {
    "parameters": "There are none: ping-pongs of three sizes or more, or overheads, have parameters.",
    "speed-ups": "There are none: they need a kernel on several numbers of ranks.",
}


@dataclass(frozen=True)
class Shown:
    """Tables of one step; `measures` are those of a step of `bench host`, as numbers."""

    kind: str
    step: str
    title: str
    explanation: str
    tables: tuple[TextTable, ...]
    measures: tuple[Measure, ...] = ()


def shown(plan: Plan, directory: Path, record: Record) -> list[Shown]:
    """Return what is shown of the steps that were done, at the plan's confidence."""
    done = {name for name, step in record.steps.items() if step.state == "done"}
    hosts = [step.name for step in plan.steps if step.begins_with([_HOST]) and step.name in done]
    return [
        *(_host(plan, name, directory) for name in hosts),
        *(_table(plan, table, directory) for table in plan.tables if table.step in done),
    ]


def _host(plan: Plan, name: str, directory: Path) -> Shown:
    measures = host_measures(_run(plan, name, directory))
    explanation = f"All values of the step '{name}'. Defined as in lmbench."
    tables = tables_of(measures, plan.confidence)
    return Shown("host", name, plan.step(name).what.capitalize(), explanation, tuple(tables), tuple(measures))


def _run(plan: Plan, name: str, directory: Path) -> Run:
    return as_asked(read_run(directory / name), directory / name, plan.confidence)


def _table(plan: Plan, table: StepTable, directory: Path) -> Shown:
    if table.kind == "account":
        tables, notes = [_layers(directory, table.step)], list[str]()
    else:
        run = _run(plan, table.step, directory)
        run = replace(run, series=tuple(selected(table.a, run)))
        noted, notes = _parameters(table, run) if table.kind == "parameters" else _speedups(table, run)
        tables = [TextTable(each.title, "; ".join(each.notes), each.headings, each.rows) for each in noted]
        notes += [] if tables else [_NOTHING[table.kind]]
        missing = [subject for subject in table.columns if subject not in {series.subject for series in run.series}]
        notes += [f"Not measured: {', '.join(missing)}."] if missing else []
    notes += [] if table.table is None else [f"Published: {table.table.source}"]
    title = f"{_TITLES[table.kind]}: {plan.step(table.step).what}"
    return Shown(table.kind, table.step, title, " ".join(filter(None, [table.note, *notes])), tuple(tables))


def _layers(directory: Path, step: str) -> TextTable:
    account = document_of(directory, step)
    try:
        return layers_table(account)
    except (KeyError, TypeError, AttributeError) as error:
        raise WrongUse(
            f"{directory / step}.json is damaged: it is no account ({error!r}); run the study again"
        ) from error


def _speedups(table: StepTable, run: Run) -> tuple[list[NotedTable], list[str]]:
    return list(speedup_tables(run, _published(table, ""))), []


def _parameters(table: StepTable, run: Run) -> tuple[list[NotedTable], list[str]]:
    """What `barewire model` fits, pieces only where there are breaks, and the parameters that tests derive."""
    fits, of_logp = latency_fits(run), logp_fits(run)
    published = {
        name: Times.of({size: [time] for size, time in times.items()})
        for name, times in _published(table, "us").items()
    }
    with_pieces = [(fit, fit.pieces.breaks) for fit in fits if not isinstance(fit.pieces, str)]
    whole = [f"{subject_name(fit.subject)} {fit.variant}".rstrip() for fit, breaks in with_pieces if not breaks]
    tables = [hockney_table(fits, published)] if fits else []
    tables += piece_tables(fit for fit, breaks in with_pieces if breaks)
    tables += [loggp_table(of_logp)] if of_logp else []
    tables += [found for _, _, found in parameter_tables(run)]
    notes = [f"{note}." for note in piece_notes(fits)]
    return tables, notes + ([f"Without a break: {', '.join(whole)}."] if whole else [])


def _published(table: StepTable, unit: str) -> dict[str, dict[int, float]]:
    """Published times in `unit`, or in their own, by name and by the numbers of `rows`: sizes or ranks."""
    found: dict[str, dict[int, float]] = {}
    of = table.table
    for column in dict.fromkeys(table.columns.values()):
        assert of is not None and table.rows is not None
        numbers = ((as_number(row[table.rows]), as_number(row[column])) for row in of.rows)
        times = {int(at): time * factor_to(unit, column) for at, time in numbers if at is not None and time is not None}
        if times:
            name = ", ".join(filter(None, [rows_in_words(table.only), column_in(unit, column)]))
            found[f"published: {name}"] = times
    return found
