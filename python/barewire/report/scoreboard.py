# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard as text: headlines, tables on the terminal, and the page of docs/."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.measure.patterns import TESTBEDS
from barewire.measure.scoreboard_runs import Board
from barewire.report.words import message_size, number, percent, quantity
from barewire.results.bounds import Judged, judge
from barewire.results.quantities import is_kernel
from barewire.results.run import Run
from barewire.results.scoreboard import SHORT_BYTES, SLOWER, Scoreboard, ScoreRow, Summary
from barewire.stats.confidence import launches_for_interval

TITLES = {testbed.name: testbed.title for testbed in TESTBEDS}
_MARKS = {"slower": "slower", "undecided": "undecided", "not slower": ""}
# A part of the suite that a subject does not support: reported once, not for each testbed.
_LEFT_OUT = re.compile(r"\w+ (?P<subject>[^/ ]+/\S+): (?P<what>.* is left out: .*)")
_ROWS_IN_DOCS = 30
_ROWS_OF_EACH_TESTBED = 10
_SEVERAL_QUANTITIES = ("burst",)


def print_board(console: Console, board: Board, rows_shown: int) -> None:
    """Print headlines, summaries, the worst rows and the bounds."""
    scores = board.scores
    # Wrapped rows are unreadable; a narrower terminal scrolls.
    console.width = max(console.width, _WIDTH_MIN)
    for sentence in headlines(scores):
        console.print(f"[bold]{escape(sentence)}[/]")
    console.print(_summary_table(scores.summaries()))
    console.print(_rows_table(scores.rows[:rows_shown]))
    if len(scores.rows) > rows_shown:
        console.print(f"[dim]… and {len(scores.rows) - rows_shown} rows that are better (--rows shows more).[/]")
    console.print(_bounds_table(judge(scores)))
    for sentence in notes(board):
        console.print(f"[yellow]{escape(sentence)}[/]")


def headlines(scores: Scoreboard) -> list[str]:
    """The means of each testbed, and the number of slower rows."""
    if not scores.rows:
        return ["Nothing could be compared."]
    sentences = []
    summaries = {summary.testbed: summary for summary in scores.summaries()}
    for testbed, summary in summaries.items():
        competitor = "shared memory" if testbed == "host" else "TCP"
        short = (
            "" if summary.short is None else f"{number(summary.short)} of the best {competitor}'s time up to 8 KiB, "
        )
        sentences.append(f"{TITLES[testbed]}: {short}{number(summary.all_sizes)} over all sizes.")
    above = sum(row.ratio > SLOWER for row in scores.rows)
    surely = sum(row.verdict == "slower" for row in scores.rows)
    percent = round(100 * (SLOWER - 1))
    sentences.append(
        f"{above} of {len(scores.rows)} rows are slower by more than {percent} %, {surely} of them beyond doubt."
    )
    return sentences


def programs(scores: Scoreboard) -> list[ScoreRow]:
    """Rows of whole programs: kernels."""
    return [row for row in scores.rows if is_kernel(row.test)]


def notes(board: Board) -> list[str]:
    """Notes on the rows: unmeasured testbeds, incomplete runs, warnings, rows without a ratio."""
    scores, sentences = board.scores, list[str]()
    if board.unmeasured:
        sentences.append(f"Not measured: {', '.join(TITLES[name] for name in board.unmeasured)}.")
    warned: defaultdict[str, list[str]] = defaultdict(list)
    left_out: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for testbed, run in board.runs.items():
        if not run.complete:
            sentences.append(f"{TITLES[testbed]}: incomplete (stopped by {run.stopped_by}).")
        for warning in run.warnings:
            if match := _LEFT_OUT.fullmatch(warning):
                left_out[match["what"]][match["subject"]] = None
            else:
                warned[warning].append(testbed)
    for warning, testbeds in warned.items():
        on = "" if testbeds == [*board.runs] else f"{', '.join(TITLES[name] for name in testbeds)}: "
        # The last output of a launch follows the first line.
        sentences.append(f"{on}{warning.splitlines()[0].removesuffix(' Last output:')}")
    sentences += [f"{', '.join(sorted(subjects))}: {what}." for what, subjects in left_out.items()]
    if scores.missing:
        first = scores.missing[0]
        sentences.append(
            f"{len(scores.missing)} rows have no ratio, such as {first.pattern}, {message_size(first.message_bytes)}, "
            f"{first.library}, {TITLES[first.testbed]}: {first.reason}."
        )
    if any(row.is_range for row in scores.rows):
        needed, sure = launches_for_interval(scores.confidence), percent(scores.confidence)
        sentences.append(
            f"Fewer than {needed} launches: intervals are the range of what the launches allow, wider than {sure}."
        )
    return sentences


def worst_beside_the_same_library(scores: Scoreboard) -> list[ScoreRow]:
    """For each testbed the rows slowest relative to the same library's other transports, worst first."""
    known = [(row.same_library, row) for row in scores.rows if row.same_library and row.same_library > SLOWER]
    known.sort(key=lambda pair: pair[0], reverse=True)
    return [row for name in TITLES for row in [row for _, row in known if row.testbed == name][:_ROWS_OF_EACH_TESTBED]]


def ratio_interval(row: ScoreRow) -> str:
    """`[0.98, 1.12]`."""
    return f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]"


def ratio_of_same_library(row: ScoreRow) -> str:
    """`0.98`, or a dash if the library has no other transport."""
    return "–" if row.same_library is None else f"{row.same_library:.2f}"


def pattern_name(row: ScoreRow) -> str:
    """Test, variant, quantity if the test has several, and parameter if it has one."""
    what = f", {row.quantity}" if row.test in _SEVERAL_QUANTITIES else ""
    more = "" if row.parameter_value is None else f", {row.parameter} {row.parameter_value:g}"
    return f"{row.pattern}{what}{more}"


def markdown(board: Board, *, source: str) -> str:
    """The scoreboard as a complete page of documentation."""
    scores = board.scores
    lines = [
        "# Scoreboard",
        "",
        f"Made by `{source}`; do not edit. How to read it: [measuring MPI libraries](mpi.md#the-scoreboard);",
        "how it is measured: [method](method.md#the-scoreboard).",
        "",
        *(f"- {sentence}" for sentence in headlines(scores)),
        "",
        *_provenance(board),
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
        *(_line(_summary_cells(summary)) for summary in scores.summaries()),
        "",
        "## Bounds",
        "",
        *_table(("bound", "at most", "found", "rows above", "beyond doubt", "")),
        *(_line(_bound_cells(bound)) for bound in judge(scores)),
        "",
        f"## The worst {min(_ROWS_IN_DOCS, len(scores.rows))} of {len(scores.rows)} rows",
        "",
        *_table(_ROW_HEADINGS),
        *(_line(_row_cells(row)) for row in scores.rows[:_ROWS_IN_DOCS]),
        "",
        "## The worst beside the same library",
        "",
        "Where a library is slower over Barewire than over the best other transport that it has: of each testbed the",
        f"worst {_ROWS_OF_EACH_TESTBED} rows above {SLOWER}.",
        "",
        *_table(_ROW_HEADINGS[3:-2]),
        *(_line(_row_cells(row)[3:-2]) for row in worst_beside_the_same_library(scores)),
        "",
        *(f"- {sentence}" for sentence in notes(board)),
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
    counts = Counter((launch.subject, launch.test) for launch in run.launches).values()
    least, most = min(counts, default=0), max(counts, default=0)
    return str(least) if least == most else f"{least} to {most}"


def _provenance(board: Board) -> list[str]:
    facts = provenance(board.runs)
    form = "quick: chosen testbeds, patterns and sizes" if board.plan.quick else "full"
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


def _summary_cells(summary: Summary) -> tuple[str, ...]:
    return (
        summary.testbed,
        summary.library or "all",
        str(summary.rows),
        number(summary.short),
        number(summary.all_sizes),
        number(summary.same_library),
        str(summary.above),
        str(summary.surely_above),
        f"{summary.worst:.2f}",
    )


def _bound_cells(bound: Judged) -> tuple[str, ...]:
    rows = (str(bound.above), str(bound.surely_above)) if bound.above or bound.surely_above else ("", "")
    return (bound.what, f"{bound.most:g}", f"{bound.found:.2f}", *rows, bound.state)


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
    for summary in summaries:
        table.add_row(*_summary_cells(summary), style=None if summary.library else "bold")
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
    for bound in judged:
        table.add_row(*_bound_cells(bound), style=styles[bound.state])
    return table


def _table(headings: Sequence[str]) -> tuple[str, str]:
    """The first two lines of a Markdown table; text is left-aligned, numbers right-aligned."""
    return _line(headings), _line(["---" if heading in _WORDS else "---:" for heading in headings])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
