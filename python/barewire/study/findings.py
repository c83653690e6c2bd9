# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Findings: what became of a claim, its rows, and verdicts with their reasons in words."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from barewire.report.words import number, percent, unit_name
from barewire.results.quantities import TIME_UNITS
from barewire.results.sdn import NOT_TOLD_APART
from barewire.study.plan import Claim
from barewire.study.tables import is_round_trip, time_factor

Verdict = Literal["held", "did not hold", "cannot be decided"]
Interval = tuple[float, float] | None

# Differences that do not matter, as a share.
MARGIN = 0.02
_NAMED_ROWS = 4


@dataclass(frozen=True)
class Row:
    """One row of a claim: `label` names it, `at` is its number, None if it has none.

    `published` and `measured` are the values of A and, if there is one, of B. The ratios are A to B; of strategies they
    are in A's favour (above 1 if A is better), and of one value that value itself, with its interval. `difference` is
    that of the means; what begins with `published_` is as published, in the same unit, p as printed.
    """

    label: str
    at: float | None
    published: tuple[float | None, ...]
    measured: tuple[float | None, ...]
    unit: str
    published_ratio: float | None
    ratio: float | None
    interval: Interval
    says: str
    p: float | None = None
    difference: float | None = None
    difference_interval: Interval = None
    published_difference: float | None = None
    published_interval: Interval = None
    published_p: str | None = None


@dataclass(frozen=True)
class Finding:
    """What became of a claim. `names` are those of A and B."""

    claim: Claim
    verdict: Verdict
    why: str
    rows: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()


def faster(rows: Sequence[Row]) -> tuple[Verdict, str]:
    """Return whether A is better in every row, and why."""
    says = Counter(row.says for row in rows)
    against = [row.label for row in rows if row.says in ("worse", "no difference")]
    spread = _spread(rows)
    if says["better"] == len(rows):
        return "held", f"Better in {_all(len(rows))}: {spread}."
    if against:
        return "did not hold", f"Better in {says['better']} of {len(rows)}, not at {named(against)}: {spread}."
    undecided = [row for row in rows if row.says != "better"]
    where = named([row.label for row in undecided])
    why = f"Better in {says['better']} of {len(rows)}, undecided at {where}: {spread}."
    sentences = [f"{reason[0].upper()}{reason[1:]}." for reason in _reasons(undecided)]
    return "cannot be decided", " ".join((why, *sentences))


def told_apart(rows: Sequence[Row], differing: Sequence[str]) -> tuple[Verdict, str]:
    """Return whether no row tells the sides apart, and why; `differing` are the labels of those that do."""
    spread = _spread(rows)
    if differing:
        return "did not hold", f"The sides differ at {named(differing)}: {spread}."
    if all(row.says == "no difference" for row in rows):
        return "held", f"No difference beyond {percent(MARGIN)} in {_all(len(rows))}: {spread}."
    if untested := [reason for reason in _reasons(rows) if reason != NOT_TOLD_APART]:
        return "cannot be decided", f"Not tested, because {' and '.join(untested)}: {spread}."
    intervals = [row.interval for row in rows if row.interval is not None]
    if not intervals:
        return "cannot be decided", f"Not tested: {spread}."
    widest = percent(round(max(max(abs(low - 1), abs(high - 1)) for low, high in intervals), 3))
    why = f"No difference is significant, but one of {widest} is not excluded: {spread}."
    return "cannot be decided", why


def grows(rows: Sequence[Row], *, lower_is_better: bool) -> tuple[Verdict, str]:
    """Return whether the ratio moves in A's favour from the first row to the last, and why."""
    first, last = rows[0], rows[-1]
    if first.at == last.at or first.interval is None or last.interval is None:
        return "cannot be decided", "It needs an interval at two numbers at least."
    said = f"{_ratio(first)} at {first.label}, {_ratio(last)} at {last.label}."
    before, after = (last, first) if lower_is_better else (first, last)
    assert before.interval is not None and after.interval is not None
    if before.interval[1] < after.interval[0]:
        return "held", f"The ratio moves in A's favour: {said}"
    if after.interval[1] < before.interval[0]:
        return "did not hold", f"The ratio moves against A: {said}"
    return "cannot be decided", f"The intervals overlap: {said}"


def place_of(claim: Claim, interval: Interval) -> str:
    """Return where an interval lies beside the claim's bounds: "within", "outside" or "undecided"."""
    low, high = _bounds(claim)
    if interval is None:
        return "undecided"
    bottom, top = interval
    return "within" if low <= bottom and top <= high else "outside" if top < low or bottom > high else "undecided"


def in_bounds(claim: Claim, rows: Sequence[Row]) -> tuple[Verdict, str]:
    """Return whether all values are within the claim's bounds, and in words."""
    states = {row.says for row in rows}
    verdict: Verdict = (
        "held" if states == {"within"} else "did not hold" if "outside" in states else "cannot be decided"
    )
    low, high = _bounds(claim)
    expected = (
        f"at most {number(high)}"
        if low == 0
        else f"at least {number(low)}"
        if high == math.inf
        else f"{number(low)} to {number(high)}"
    )
    values = ", ".join(number(row.ratio) for row in rows[:_NAMED_ROWS] if row.ratio is not None)
    return verdict, f"{values}{' …' if len(rows) > _NAMED_ROWS else ''}; expected {expected}."


def incomplete(finding: Finding, what: str) -> Finding:
    """Return the finding where a part of what is claimed has no values: it may be wrong, but does not hold."""
    verdict: Verdict = "cannot be decided" if finding.verdict == "held" else finding.verdict
    return replace(finding, verdict=verdict, why=f"{finding.why} {what}")


def published_ratio(published: Sequence[float | None]) -> float | None:
    """Return the ratio of the first value to the second; None unless both are there."""
    if len(published) != 2 or published[0] is None or not published[1]:
        return None
    return published[0] / published[1]


def column_in(unit: str, column: str) -> str:
    """Return what a published column is called whose times are shown in `unit`, one way; others keep their name."""
    if time_factor(column) is None or unit not in TIME_UNITS:
        return column
    return f"{'half of ' * is_round_trip(column)}{column.rpartition('_')[0]}, {unit_name(unit)}"


def named(labels: Sequence[str]) -> str:
    """Return the first of the labels, and how many more there are."""
    more = len(labels) - _NAMED_ROWS
    return ", ".join(labels[:_NAMED_ROWS]) + (f" and {more} more" if more > 0 else "")


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Why nothing can be said of rows, each reason once."""
    return list(dict.fromkeys(reason for row in rows if (reason := row.says.partition(": ")[2])))


def _bounds(claim: Claim) -> tuple[float, float]:
    return 0.0 if claim.low is None else claim.low, math.inf if claim.high is None else claim.high


def _ratio(row: Row) -> str:
    interval = "" if row.interval is None else f" [{number(row.interval[0])}, {number(row.interval[1])}]"
    return f"{number(row.ratio)}{interval}"


def _spread(rows: Sequence[Row]) -> str:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    then = [row.published_ratio for row in rows if row.published_ratio is not None]
    text = f"ratio {number(min(ratios))} to {number(max(ratios))}" if len(ratios) > 1 else f"ratio {number(ratios[0])}"
    if then:
        text += f", published {number(min(then))}" + (f" to {number(max(then))}" if len(then) > 1 else "")
    return text


def _all(count: int) -> str:
    return "the only row" if count == 1 else f"all {count} rows"
