# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard as one self-contained HTML file: programs, a map of all ratios, every row."""

from typing import Any

from barewire.measure.scoreboard_runs import Board
from barewire.report.html import fill
from barewire.report.scoreboard import (
    TITLES,
    headlines,
    notes,
    pattern_name,
    programs,
    provenance,
    ratio_interval,
    ratio_of_same_library,
)
from barewire.report.words import message_size, quantity, test_title
from barewire.results.bounds import judge
from barewire.results.quantities import has_own_sizes, is_kernel
from barewire.results.scoreboard import SHORT_BYTES, SLOWER, ScoreRow


def render_board(board: Board, *, more: str | None = None) -> str:
    """The page of a scoreboard; `more` is a page beside it to link to."""
    scores = board.scores
    return fill(
        "scoreboard.html.j2",
        headlines=headlines(scores),
        notes=notes(board),
        more=more,
        testbeds={name: TITLES[name] for name in board.runs},
        libraries=sorted({row.library for row in scores.rows}),
        tests=list(dict.fromkeys(row.test for row in sorted(scores.rows, key=lambda row: row.test))),
        programs=[_program(row) for row in sorted(programs(scores), key=_program_order)],
        summaries=scores.summaries(),
        bounds=judge(scores),
        rows=[_row(row) for row in scores.rows],
        map=[_cell(row) for row in scores.rows if not is_kernel(row.test)],
        provenance=provenance(board.runs),
        quick=board.plan.quick,
        slower=SLOWER,
        short=message_size(SHORT_BYTES),
        launches=sum(len(run.launches) for run in board.runs.values()),
        titles=TITLES,
    )


def _row(row: ScoreRow) -> dict[str, Any]:
    return {
        "ratio": f"{row.ratio:.2f}",
        "interval": ratio_interval(row),
        "verdict": row.verdict,
        "same_library": ratio_of_same_library(row),
        "testbed": row.testbed,
        "test": row.test,
        "pattern": pattern_name(row),
        "size": "" if has_own_sizes(row.test) else message_size(row.message_bytes),
        "library": row.library,
        "ours": quantity(row.ours, row.unit),
        "theirs": quantity(row.theirs, row.unit),
        "best": row.best,
        "launches": row.launches,
    }


def _cell(row: ScoreRow) -> dict[str, Any]:
    """A row's cell in the map."""
    return {
        "testbed": row.testbed,
        "library": row.library,
        "pattern": pattern_name(row),
        "bytes": row.message_bytes,
        "size": message_size(row.message_bytes),
        "ratio": round(row.ratio, 3),
        "verdict": row.verdict,
        "tooltip": f"{quantity(row.ours, row.unit)} over Barewire, {quantity(row.theirs, row.unit)} with {row.best}; "
        f"ratio {row.ratio:.2f} {ratio_interval(row)}",
    }


def _program_order(row: ScoreRow) -> tuple[object, ...]:
    return [*TITLES].index(row.testbed), row.test, row.variant, row.library


def _program(row: ScoreRow) -> dict[str, Any]:
    """Two bars with lengths proportional to the times, the longer one at full width."""
    longest = max(row.ours, row.theirs)
    return {
        "title": f"{test_title(row.test)}, {row.variant}",
        "testbed": TITLES[row.testbed],
        "library": row.library,
        "best": row.best,
        "ours": quantity(row.ours, row.unit),
        "theirs": quantity(row.theirs, row.unit),
        "ours_percent": round(100 * row.ours / longest, 1),
        "theirs_percent": round(100 * row.theirs / longest, 1),
        "ratio": f"{row.ratio:.2f}",
        "interval": ratio_interval(row),
        "verdict": row.verdict,
    }
