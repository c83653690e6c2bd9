# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The bounds that the scoreboard must meet, as a table, and their evaluation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from barewire.results.scoreboard import SHORT_BYTES, Missing, Scoreboard, ScoreRow
from barewire.stats.best import geometric_mean

_KIB = 1024

State = Literal["kept", "missed", "undecided"]


@dataclass(frozen=True)
class Bound:
    """An upper limit for ratios, of the geometric mean or of each row, and the rows that it applies to."""

    what: str
    most: float
    of: Literal["mean", "rows"]
    is_about: Callable[[ScoreRow | Missing], bool]


@dataclass(frozen=True)
class Judged:
    """A bound, the mean or largest measured ratio, and the number of rows above it, with and without certainty."""

    what: str
    most: float
    found: float
    above: int
    surely_above: int
    state: State


def _of_pair(testbed: str) -> tuple[Bound, ...]:
    """Return the bounds of a testbed of two hosts without a rate limit."""

    def sized(least: int, most: float) -> Callable[[ScoreRow | Missing], bool]:
        return lambda row: row.testbed == testbed and least <= row.message_bytes <= most

    return (
        Bound(f"{testbed}, up to 8 KiB: mean", 0.5, "mean", sized(0, SHORT_BYTES)),
        Bound(f"{testbed}, all sizes: mean", 0.85, "mean", sized(0, inf)),
        Bound(f"{testbed}, up to 32 KiB: each row", 1.05, "rows", sized(0, 32 * _KIB)),
        Bound(f"{testbed}, above 32 KiB: each row", 1.15, "rows", sized(32 * _KIB + 1, inf)),
    )


BOUNDS = (
    *_of_pair("pair"),
    *_of_pair("pair-9000"),
    *_of_pair("pair-offloads"),
    Bound("1 Gb/s: each row", 1.02, "rows", lambda row: "1gbit" in row.testbed),
    Bound("one host: mean", 1.1, "mean", lambda row: row.testbed == "host"),
    Bound("one host: each row", 1.5, "rows", lambda row: row.testbed == "host"),
)


def judge(board: Scoreboard) -> list[Judged]:
    """Evaluate the bounds that apply to any row; a row is surely above if its whole interval is.

    A bound is not kept while Barewire lacks values that the competitors have.
    """
    judged = []
    for bound in BOUNDS:
        rows = [row for row in board.rows if bound.is_about(row)]
        if rows:
            found = _judge(bound, rows)
            lacks = any(each.is_ours and bound.is_about(each) for each in board.missing)
            judged.append(replace(found, state="undecided") if found.state == "kept" and lacks else found)
    return judged


def _judge(bound: Bound, rows: list[ScoreRow]) -> Judged:
    if bound.of == "mean":
        mean = geometric_mean([row.ratio for row in rows])
        return Judged(bound.what, bound.most, mean, 0, 0, "kept" if mean <= bound.most else "missed")
    above = sum(row.ratio > bound.most for row in rows)
    surely = sum(row.is_surely_above(bound.most) for row in rows)
    possibly = any(max(row.ratio, row.interval[1]) > bound.most for row in rows)
    state: State = "missed" if surely else "undecided" if possibly else "kept"
    return Judged(bound.what, bound.most, max(row.ratio for row in rows), above, surely, state)
