# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables on the terminal: what was measured, then who is faster; readable at 80 columns."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barewire.models.naming import is_floor
from barewire.report.versus import Versus, compare_in_run
from barewire.report.words import (
    MARKS,
    VERDICT_WORDS,
    bounds,
    interval,
    marks_of,
    message_size,
    number,
    p_value,
    subject_name,
    test_title,
    unit_name,
)
from barewire.results import Run, Series, Shared

_SIZE_COLUMNS = 10
_RATIO_COLUMNS = 24  # "0.331 [0.330, 0.333]" under a heading
_CELL_COLUMNS = 22  # "41015 [40846, 41156]" with its padding
_MARK_STYLES = {"impossible": "bold red", "faster than floor": "cyan", "lossy": "yellow", "incomplete": "yellow"}
_VERDICT_STYLES = {"A faster": "green", "B faster": "red", "undecided": "dim", "no difference": "default"}


def print_run(console: Console, run: Run, *, baseline: str = "tcp") -> None:
    """Print the run's series, then every subject against `baseline` if the run has it."""
    for table in sharing_tables(run) if run.shared else run_tables(run, width=console.width):
        console.print(table)
    if run.shared:
        console.print("[dim]Shares: the smallest and the largest process's, by the mean of all in a launch.[/]")
    for key in sorted({mark for one in run.series for mark in marks_of(one)}, key=list(MARKS).index):
        console.print(f"[{_MARK_STYLES[key]}]{MARKS[key][0]}[/] {MARKS[key][1]}")
    if not run.complete:
        console.print(f"[yellow]This run is incomplete (stopped by {escape(str(run.stopped_by))}).[/]")
    if any(one.ci95 is None and one.median is not None for one in run.series):
        console.print("[dim]No interval where fewer than 6 launches were made.[/]")
    if not run.shared and any(one.subject == baseline for one in run.series):
        # The floor is a reference, not a contestant.
        comparisons = [one for one in compare_in_run(run, baseline) if not is_floor(one.a.subject)]
        for table in ratio_tables(comparisons, width=console.width):
            console.print(table)


def run_tables(run: Run, *, width: int = 100) -> list[Table]:
    """Per test, a table of sizes × subjects; split into several where the subjects need more columns."""
    per_table = max(1, (width - _SIZE_COLUMNS) // _CELL_COLUMNS)
    tables = []
    for place in dict.fromkeys(_place(one) for one in run.series):
        series = [one for one in run.series if _place(one) == place]
        subjects = list(dict.fromkeys(one.subject for one in series))
        for start in range(0, len(subjects), per_table):
            part = subjects[start : start + per_table]
            chosen = [one for one in series if one.subject in part]
            cells = {(one.message_bytes, one.subject): _cell(one) for one in chosen}
            tables.append(_matrix(_title(chosen), part, cells))
    return tables


def sharing_tables(run: Run) -> list[Table]:
    """Per test, size and subject: what all processes get and what each gets, by their number."""
    tables = []
    for test, size, subject in dict.fromkeys((one.test, one.message_bytes, one.subject) for one in run.shared):
        rows = [one for one in run.shared if (one.test, one.message_bytes, one.subject) == (test, size, subject)]
        is_rate = test != "pingpong"
        what = f"{test_title(test)}, {message_size(size)}, {subject_name(subject)}, in {unit_name(rows[0].unit)}"
        table = Table(title=escape(what), title_justify="left", box=SIMPLE_HEAD)
        whole = "in total [95 %]" if is_rate else "all [95 %]"
        for name in ("processes", whole, "to one", "shares", "each [95 %]"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in rows:
            table.add_row(*_sharing_cells(one))
        tables.append(table)
    return tables


def _sharing_cells(one: Shared) -> list[str | Text]:
    if one.median is None:
        return [str(one.processes), Text("no loss-free sample", style="yellow"), "–", "–", "–"]
    each = (f"{number(value)} {bounds(ci95)}".rstrip() for value, ci95 in zip(one.each, one.each_ci95, strict=True))
    return [
        str(one.processes),
        Text(f"{number(one.median)} {bounds(one.ci95)}".rstrip(), style="bold"),
        number(one.ratio_to_one),
        f"{number(one.smallest_share)}, {number(one.largest_share)}",
        "\n".join(each),
    ]


def versus_tables(
    comparisons: Sequence[Versus], *, a_name: str | None = None, b_name: str | None = None
) -> list[Table]:
    """Per test and subject: both medians, ratio with interval, corrected p values, verdict about A.

    The names of the sides default to their subjects'.
    """
    families: dict[tuple[tuple[str, int, int], str], list[Versus]] = {}
    for one in comparisons:
        families.setdefault((_place(one.a), one.a.subject), []).append(one)
    tables = []
    for (place, subject), family in families.items():
        left, right = a_name or subject_name(subject), b_name or subject_name(family[0].b.subject)
        what = test_title(*place) if a_name is None else f"{test_title(*place)}, {subject_name(subject)}"
        better = "below" if family[0].a.lower_is_better else "above"
        title = f"{what}: {left} / {right} ({better} 1: {left} is faster)"
        table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
        unit = unit_name(family[0].a.unit)
        for name in ("message", f"A {unit}", f"B {unit}", "A/B [95 %]", "p Welch", "p rank"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("A is", no_wrap=True)
        for one in family:
            table.add_row(*_versus_cells(one))
        tables.append(table)
    return tables


def ratio_tables(comparisons: Sequence[Versus], *, width: int = 100) -> list[Table]:
    """Per test, sizes × subjects: the ratio to the baseline with its interval and the verdict in one word."""
    per_table = max(1, (width - _SIZE_COLUMNS) // _RATIO_COLUMNS)
    tables = []
    for place in dict.fromkeys(_place(one.a) for one in comparisons):
        chosen = [one for one in comparisons if _place(one.a) == place]
        better = "below" if chosen[0].a.lower_is_better else "above"
        subjects = list(dict.fromkeys(one.a.subject for one in chosen))
        title = f"{test_title(*place)}: ratio to {subject_name(chosen[0].b.subject)} ({better} 1 is faster)"
        for start in range(0, len(subjects), per_table):
            part = subjects[start : start + per_table]
            rows = {(one.a.message_bytes, one.a.subject): _ratio_cell(one) for one in chosen if one.a.subject in part}
            tables.append(_matrix(title, part, rows))
    return tables


def _place(one: Series) -> tuple[str, int, int]:
    return one.test, one.pairs, one.processes


def _matrix(title: str, subjects: Sequence[str], cells: Mapping[tuple[int, str], Text]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("message", justify="right")
    for subject in subjects:
        table.add_column(escape(subject_name(subject)), justify="right")
    for message_bytes in sorted({size for size, _ in cells}):
        row = [cells.get((message_bytes, subject), Text("–", style="dim")) for subject in subjects]
        table.add_row(message_size(message_bytes), *row)
    return table


def _title(series: Sequence[Series]) -> str:
    first = series[0]
    # The tail matters where a program waits for one message; a rate is already a sum over many.
    tail = ["p99"] if first.lower_is_better else []
    shares = [f"share of the {kind}" for kind in sorted({one.limit_kind for one in series if one.limit_kind})]
    below = f"; below it {', '.join(tail + shares)}" if tail or shares else ""
    return f"{test_title(*_place(first))}: median [95 % interval] in {unit_name(first.unit)}{below}"


def _cell(one: Series) -> Text:
    cell = Text()
    if one.median is None:
        cell.append("no loss-free sample", style="yellow")
    else:
        cell.append(number(one.median), style="bold")
        cell.append(f" {interval(one.ci95)}" if one.ci95 else "")
    details = [f"p99 {number(one.p99)}"] if one.lower_is_better and one.p99 is not None else []
    if one.fraction_of_limit is not None and not is_floor(one.subject):
        details.append(f"{one.fraction_of_limit:.0%}")
    marks = marks_of(one)
    if not (details or marks):
        return cell
    cell.append("\n" + " · ".join(details), style="dim")
    for mark in marks:
        cell.append(f" {MARKS[mark][0]}", style=_MARK_STYLES[mark])
    return cell


def _ratio_cell(one: Versus) -> Text:
    result = one.result
    bounds = f" {interval(result.ratio_ci95)}" if result.ratio_ci95 else ""
    cell = Text(number(result.ratio) + bounds)
    return cell.append(f"\n{VERDICT_WORDS[result.verdict]}", style=_VERDICT_STYLES[result.verdict])


def _versus_cells(one: Versus) -> list[str | Text]:
    result = one.result
    bounds = f" {interval(result.ratio_ci95)}" if result.ratio_ci95 else ""
    return [
        message_size(one.a.message_bytes),
        number(one.a.median),
        number(one.b.median),
        number(result.ratio) + bounds,
        p_value(result.welch_p_holm),
        p_value(result.mann_whitney_p_holm),
        Text(VERDICT_WORDS[result.verdict], style=_VERDICT_STYLES[result.verdict]),
    ]
