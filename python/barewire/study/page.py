# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A study as a page: each claim with its verdict, the published table beside today's, and both as a figure."""

import shlex
from collections.abc import Sequence
from typing import Any

from barewire.report.answer import Answer
from barewire.report.figures import (
    Figure,
    colour_by_number,
    distinct,
    error_bars,
    layout_of,
    log_axis,
    plain_axis,
    point_data,
    rows_px,
    shortened,
)
from barewire.report.html import page
from barewire.report.words import percent
from barewire.study.findings import Finding, Row
from barewire.study.flaws import published_flaws
from barewire.study.plan import Plan
from barewire.study.report import ABOVE_ONE_IS_BETTER, headline, table_of, warnings
from barewire.study.shown import Shown
from barewire.study.steps import Record

# With more rows a figure has an axis of numbers, not of names.
_NAMED_MAX = 10


def render_study(plan: Plan, findings: Sequence[Finding], record: Record, tables: Sequence[Shown]) -> str:
    """The page of a study, with the tables of its steps."""
    parts = [_part(number, finding) for number, finding in enumerate(findings, 1)]
    steps = [
        {"name": name, "command": shlex.join(("barewire", *done.command)), "state": done.state, "seconds": done.seconds}
        for name, done in record.steps.items()
    ]
    return page(
        "study.html.j2",
        answer=Answer(plan.question, headline(findings)),
        plan=plan,
        record=record,
        confidence=percent(plan.confidence),
        figures_confidence=plan.confidence,
        warnings=warnings(record),
        builds="; ".join(record.builds),
        claims=[
            (part["id"], finding.verdict, finding.claim.text) for part, finding in zip(parts, findings, strict=True)
        ],
        flaws=published_flaws(plan),
        parts=[*parts, *(_step_part(number, each) for number, each in enumerate(tables, 1))],
        steps=steps,
    )


def _part(number: int, finding: Finding) -> dict[str, Any]:
    figure = _figure(finding)
    caption = f"{_ratio_in_words(finding).capitalize()}; bars are intervals. Published ratios have none."
    cards = [] if figure is None else [{"title": "Published and today", "caption": caption, "figure": figure}]
    table = table_of(finding)
    claim = finding.claim
    return {
        "id": f"claim-{number}",
        "title": f"{number}. {claim.text}",
        "explanation": " ".join(
            part for part in (f"{finding.verdict.capitalize()}. {finding.why}", claim.note) if part
        ),
        "figures": cards,
        "tables": [("Published and today", table)] if finding.rows else [],
    }


def _step_part(number: int, shown: Shown) -> dict[str, Any]:
    return {
        "id": f"table-{number}",
        "title": shown.title,
        "explanation": shown.explanation,
        "figures": [],
        "tables": [(table.title, table) for table in shown.tables],
    }


def _figure(finding: Finding) -> Figure | None:
    """Published and today's ratios; None for claims about one value."""
    rows = [row for row in finding.rows if row.ratio is not None and len(row.measured) == 2]
    if not rows:
        return None
    by_number = len(rows) > _NAMED_MAX and len({row.at for row in rows}) == len(rows) and all(row.at for row in rows)
    traces = [_trace("today", 0, rows, by_number)]
    published = [row for row in rows if row.published_ratio is not None]
    if published:
        traces.append(_trace("published", 1, published, by_number))
    axis = "y" if by_number else "x"
    ratio = log_axis(_ratio_in_words(finding), [*traces, {axis: [1]}], axis)
    if by_number:
        places = log_axis(finding.claim.key[-1].replace("_", " "), traces, "x")
        return {"data": distinct(traces), "layout": layout_of(places, ratio)}
    names = {**plain_axis(""), "type": "category", "autorange": "reversed"}
    layout = layout_of(ratio, names) | {"scattermode": "group"}
    return {"data": distinct(traces), "layout": layout, "height_px": rows_px(len(rows), len(traces))}


def _ratio_in_words(finding: Finding) -> str:
    if finding.claim.kind in ABOVE_ONE_IS_BETTER:
        return "ratio (above 1 is better)"
    return "ratio of the first to the second"


def _trace(name: str, number: int, rows: Sequence[Row], by_number: bool) -> dict[str, Any]:
    values = [(row.ratio if name == "today" else row.published_ratio) or 0.0 for row in rows]
    bounds = [row.interval if name == "today" else None for row in rows]
    colour = colour_by_number(number)
    value, place = ("y", "x") if by_number else ("x", "y")
    return {
        **{"type": "scatter", "mode": "lines+markers" if by_number else "markers", "name": name},
        "line": {"color": colour, "width": 2, "dash": "solid" if name == "today" else "dash"},
        "marker": {"color": colour, "size": 8, "symbol": "circle" if name == "today" else "diamond"},
        place: [row.at if by_number else row.label for row in rows],
        value: [shortened(each) for each in values],
        f"error_{value}": error_bars(values, bounds),
        "customdata": [point_data(interval) for interval in bounds],
        "hovertemplate": f"%{{{value}:.3g}} ×",
    }
