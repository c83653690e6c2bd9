# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard in words: headlines, tables on the terminal, and the page of docs/."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.measure.patterns import TESTBEDS
from barewire.measure.scoreboard_runs import Board
from barewire.report.words import message_size, number, quantity
from barewire.results import Run
from barewire.results.bounds import Judged, judge
from barewire.results.quantities import is_kernel
from barewire.results.scoreboard import SHORT_BYTES, SLOWER, Scoreboard, ScoreRow, Summary

TITLES = {one.name: one.title for one in TESTBEDS}
_MARKS = {"slower": "slower", "undecided": "undecided", "not slower": ""}
# A part of the suite that a subject cannot do: said once, not for each testbed.
_LEFT_OUT = re.compile(r"\w+ (?P<subject>[^/ ]+/\S+): (?P<what>.* is left out: .*)")
_ROWS_IN_DOCS = 30
_ROWS_OF_EACH_TESTBED = 10
_SEVERAL_QUANTITIES = ("burst",)


def print_board(console: Console, whole: Board, rows_shown: int) -> None:
    """Print headlines, summaries, the worst rows and the bounds."""
    board = whole.scores
    # Rows that wrap are no rows; a terminal that is narrower may scroll.
    console.width = max(console.width, _WIDTH_MIN)
    for sentence in headlines(board):
        console.print(f"[bold]{escape(sentence)}[/]")
    console.print(_summary_table(board.summaries()))
    console.print(_rows_table(board.rows[:rows_shown]))
    if len(board.rows) > rows_shown:
        console.print(f"[dim]… and {len(board.rows) - rows_shown} rows that are better (--rows shows more).[/]")
    console.print(_bounds_table(judge(board)))
    for sentence in notes(whole):
        console.print(f"[yellow]{escape(sentence)}[/]")


def headlines(board: Scoreboard) -> list[str]:
    """What a reader must know first: the means of each testbed, and how many rows are slower."""
    if not board.rows:
        return ["Nothing could be compared."]
    said = []
    whole = {one.testbed: one for one in board.summaries()}
    for testbed, one in whole.items():
        other = "shared memory" if testbed == "host" else "TCP"
        short = "" if one.short is None else f"{number(one.short)} of the best {other}'s time up to 8 KiB, "
        said.append(f"{TITLES[testbed]}: {short}{number(one.all_sizes)} over all sizes.")
    above = sum(row.ratio > SLOWER for row in board.rows)
    surely = sum(row.verdict == "slower" for row in board.rows)
    percent = round(100 * (SLOWER - 1))
    said.append(
        f"{above} of {len(board.rows)} rows are slower by more than {percent} %, {surely} of them beyond doubt."
    )
    return said


def programs(board: Scoreboard) -> list[ScoreRow]:
    """Rows of whole programs: kernels."""
    return [row for row in board.rows if is_kernel(row.test)]


def notes(whole: Board) -> list[str]:
    """What qualifies the rows: testbeds that are not there, runs that broke off, warnings, rows without a ratio."""
    board, said = whole.scores, list[str]()
    if whole.unmeasured:
        said.append(f"Not measured: {', '.join(TITLES[name] for name in whole.unmeasured)}.")
    warned: defaultdict[str, list[str]] = defaultdict(list)
    left_out: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for testbed, run in whole.runs.items():
        if not run.complete:
            said.append(f"{TITLES[testbed]}: incomplete (stopped by {run.stopped_by}).")
        for warning in run.warnings:
            if one := _LEFT_OUT.fullmatch(warning):
                left_out[one["what"]][one["subject"]] = None
            else:
                warned[warning].append(testbed)
    for warning, testbeds in warned.items():
        on = "" if testbeds == [*whole.runs] else f"{', '.join(TITLES[name] for name in testbeds)}: "
        # What a launch said last follows its first line.
        said.append(f"{on}{warning.splitlines()[0].removesuffix(' Last output:')}")
    said += [f"{', '.join(sorted(subjects))}: {what}." for what, subjects in left_out.items()]
    if board.missing:
        first = board.missing[0]
        said.append(
            f"{len(board.missing)} rows have no ratio, such as {first.pattern}, {message_size(first.message_bytes)}, "
            f"{first.library}, {TITLES[first.testbed]}: {first.reason}."
        )
    if any(row.is_range for row in board.rows):
        said.append("Fewer than six launches: intervals are the range of what the launches allow, wider than 95 %.")
    return said


def worst_beside_the_same_library(board: Scoreboard) -> list[ScoreRow]:
    """Of each testbed the rows that lose most beside what else their library has, worst first."""
    known = [(row.same_library, row) for row in board.rows if row.same_library and row.same_library > SLOWER]
    known.sort(key=lambda one: one[0], reverse=True)
    return [row for name in TITLES for row in [row for _, row in known if row.testbed == name][:_ROWS_OF_EACH_TESTBED]]


def ratio_interval(row: ScoreRow) -> str:
    """`[0.98, 1.12]`."""
    return f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]"


def ratio_of_same_library(row: ScoreRow) -> str:
    """`0.98`, or a dash where the library has nothing else."""
    return "–" if row.same_library is None else f"{row.same_library:.2f}"


def pattern_name(row: ScoreRow) -> str:
    """Test, variant, what of it where a test tells several things, and a parameter if it has one."""
    what = f", {row.quantity}" if row.test in _SEVERAL_QUANTITIES else ""
    more = "" if row.parameter_value is None else f", {row.parameter} {row.parameter_value:g}"
    return f"{row.pattern}{what}{more}"


def markdown(whole: Board, *, source: str) -> str:
    """The scoreboard as a page of documentation, made anew as a whole."""
    board = whole.scores
    lines = [
        "# Scoreboard",
        "",
        f"Made by `{source}`; do not edit. How to read it: [measuring MPI libraries](mpi.md#the-scoreboard);",
        "how it is measured: [method](method.md#the-scoreboard).",
        "",
        *(f"- {sentence}" for sentence in headlines(board)),
        "",
        *_provenance(whole),
        "",
        "## By testbed and library",
        "",
        'Geometric means of the time over Barewire by the time of the best other, below 1 is faster; "same library" is',
        "by the best other of the row's own library, over all sizes.",
        "",
        *_table(
            (
                "testbed",
                "library",
                "rows",
                "up to 8 KiB",
                "all sizes",
                "same library",
                "above 1.05",
                "beyond doubt",
                "worst",
            )
        ),
        *(_line(_summary_cells(one)) for one in board.summaries()),
        "",
        "## Bounds",
        "",
        *_table(("bound", "at most", "found", "rows above", "beyond doubt", "")),
        *(_line(_bound_cells(one)) for one in judge(board)),
        "",
        f"## The worst {min(_ROWS_IN_DOCS, len(board.rows))} of {len(board.rows)} rows",
        "",
        *_table(_ROW_HEADINGS),
        *(_line(_row_cells(row)) for row in board.rows[:_ROWS_IN_DOCS]),
        "",
        "## The worst beside the same library",
        "",
        "Where a library is slower over Barewire than over the best other transport that it has: of each testbed the",
        f"worst {_ROWS_OF_EACH_TESTBED} rows above {SLOWER}.",
        "",
        *_table(_ROW_HEADINGS[3:-2]),
        *(_line(_row_cells(row)[3:-2]) for row in worst_beside_the_same_library(board)),
        "",
        *(f"- {sentence}" for sentence in notes(whole)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def provenance(runs: Mapping[str, Run]) -> dict[str, str]:
    """Machine, date and versions of the runs, which are all of one machine."""
    first = next(iter(runs.values()))
    environment, libraries = first.environment, dict[str, str]()
    for run in runs.values():
        libraries |= run.parameters["libraries"]
    return {
        "Measured": ", ".join(dict.fromkeys(run.created[:10] for run in runs.values())),
        "Machine": f"{environment.get('cpu')}, {environment.get('cores')} cores, Linux {environment.get('kernel')}"
        + (", virtual" if environment.get("hypervisor") else ""),
        "Libraries": ", ".join(f"{name} ({what})" for name, what in sorted(libraries.items())),
        "Launches": ", ".join(f"{name} {_launches_of_each(run)}" for name, run in runs.items()),
    }


def _launches_of_each(run: Run) -> str:
    counts = Counter((one.subject, one.test) for one in run.launches).values()
    least, most = min(counts, default=0), max(counts, default=0)
    return str(least) if least == most else f"{least} to {most}"


def _provenance(whole: Board) -> list[str]:
    facts = provenance(whole.runs)
    form = "quick: chosen testbeds, patterns and sizes" if whole.plan.quick else "full"
    return [f"{name}: {what}.  " for name, what in facts.items()] + [f"Form: {form}."]


_ROW_HEADINGS = (
    *("ratio", "interval", "", "same library", "testbed", "pattern", "size", "library", "Barewire", "best other"),
    "which",
)
_WORDS = ("", "testbed", "library", "pattern", "which", "bound")
_WIDTH_MIN = 165


def _row_cells(row: ScoreRow) -> tuple[str, ...]:
    return (
        f"{row.ratio:.2f}",
        ratio_interval(row),
        _MARKS[row.verdict],
        ratio_of_same_library(row),
        row.testbed,
        pattern_name(row),
        message_size(row.message_bytes),
        row.library,
        quantity(row.ours, row.unit),
        quantity(row.theirs, row.unit),
        row.best,
    )


def _summary_cells(one: Summary) -> tuple[str, ...]:
    return (
        one.testbed,
        one.library or "all",
        str(one.rows),
        number(one.short),
        number(one.all_sizes),
        number(one.same_library),
        str(one.above),
        str(one.surely_above),
        f"{one.worst:.2f}",
    )


def _bound_cells(one: Judged) -> tuple[str, ...]:
    rows = (str(one.above), str(one.surely_above)) if one.above or one.surely_above else ("", "")
    return (one.what, f"{one.most:g}", f"{one.found:.2f}", *rows, one.state)


def _summary_table(summaries: Sequence[Summary]) -> Table:
    table = Table(title="Time by the best other's: geometric means", box=SIMPLE_HEAD, title_justify="left")
    for heading in ("testbed", "library"):
        table.add_column(heading)
    for heading in (
        "rows",
        f"≤ {message_size(SHORT_BYTES)}",
        "all sizes",
        "same library",
        f"> {SLOWER}",
        "beyond doubt",
        "worst",
    ):
        table.add_column(heading, justify="right")
    for one in summaries:
        table.add_row(*_summary_cells(one), style=None if one.library else "bold")
    return table


def _rows_table(rows: Sequence[ScoreRow]) -> Table:
    table = Table(title="Worst first", box=SIMPLE_HEAD, title_justify="left")
    for heading in _ROW_HEADINGS:
        table.add_column(heading, justify="left" if heading in _WORDS else "right")
    styles = {"slower": "red", "undecided": "yellow", "not slower": None}
    for row in rows:
        table.add_row(*map(escape, _row_cells(row)), style=styles[row.verdict])
    return table


def _bounds_table(judged: Sequence[Judged]) -> Table:
    table = Table(title="Bounds", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("bound")
    for heading in ("at most", "found", "rows above", "beyond doubt"):
        table.add_column(heading, justify="right")
    table.add_column("")
    styles = {"missed": "red", "undecided": "yellow", "kept": "green"}
    for one in judged:
        table.add_row(*_bound_cells(one), style=styles[one.state])
    return table


def _table(headings: Sequence[str]) -> tuple[str, str]:
    """The first two lines of a table of Markdown; words stand to the left, numbers to the right."""
    return _line(headings), _line(["---" if heading in _WORDS else "---:" for heading in headings])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
