# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard as one self-contained HTML file: programs, a map of all ratios, every row."""

from typing import Any

from barewire.measure.scoreboard_runs import Board
from barewire.report.answer import Answer
from barewire.report.figures import INK, distinct, layout_of, log_axis, plain_axis, rows_px, shortened
from barewire.report.html import page
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
from barewire.report.words import message_size, percent, quantity, test_title
from barewire.results.bounds import judge
from barewire.results.quantities import has_own_sizes, is_kernel
from barewire.results.scoreboard import SHORT_BYTES, SLOWER, Scoreboard, ScoreRow
from barewire.stats.confidence import launches_for_interval


def render_board(board: Board, *, more: str | None = None) -> str:
    """The page of a scoreboard; `more` is a page beside it to link to."""
    scores = board.scores
    return page(
        "scoreboard.html.j2",
        answer=_answer(scores),
        warnings=(),
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
        confidence=percent(scores.confidence),
        few=launches_for_interval(scores.confidence),
        short=message_size(SHORT_BYTES),
        launches=sum(len(run.launches) for run in board.runs.values()),
        titles=TITLES,
    )


def _answer(scores: Scoreboard) -> Answer:
    """The means of each testbed: for short messages, over all sizes, and relative to the same library."""
    sentences = headlines(scores)
    question = "Is MPI over Ethernet frames faster than the fastest TCP of any installed library?"
    summaries = list({summary.testbed: summary for summary in scores.summaries()}.values())
    looks = (
        (f"up to {message_size(SHORT_BYTES)}", "#0072B2", "circle", [summary.short for summary in summaries]),
        ("all sizes", "#D55E00", "square", [summary.all_sizes for summary in summaries]),
        ("all sizes, the same library", "#009E73", "diamond", [summary.same_library for summary in summaries]),
    )
    traces: list[dict[str, Any]] = []
    for name, colour, symbol, means in looks:
        known = [(TITLES[each.testbed], mean) for each, mean in zip(summaries, means, strict=True) if mean is not None]
        trace: dict[str, Any] = {"type": "scatter", "mode": "markers", "name": name, "line": {"color": colour}}
        trace |= {"marker": {"symbol": symbol, "size": 9}}
        trace |= {"x": [shortened(mean) for _, mean in known], "y": [testbed for testbed, _ in known]}
        traces += [trace] if known else []
    if not traces:
        return Answer(question, sentences[0])
    axis = log_axis("time relative to the best competitor", [*traces, {"x": [1]}], "x")
    layout = layout_of(axis, {**plain_axis(""), "type": "category", "autorange": "reversed"})
    one = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1, "line": {"color": INK, "width": 1.5}}
    layout |= {"shapes": [one], "scattermode": "group", "hovermode": "closest"}
    figure = {"data": distinct(traces), "layout": layout, "height_px": rows_px(len(summaries), len(traces))}
    caption = f"Geometric means of {len(scores.rows)} ratios, by testbed. Left of 1 Barewire takes less time."
    return Answer(question, sentences[-1], tuple(sentences[:-1]), "Means by testbed", caption, figure)


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
