# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether a program printed the same over two fabrics, but for what differs from launch to launch anyway; pure.

Lines are taken by what is left without their numbers, so that ranks may print in any order; of each such line, each
column of numbers is compared by itself. What differs between launches over the same fabric tells nothing of fabrics.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
_HOLE = "#"
# Lines of which a number that differs is no result: times, rates and dates.
_TIMING = re.compile(
    r"\b(?:times?|timing|wall|elapsed|seconds?|secs?|s|msecs?|ms|usecs?|us|µs|ns|minutes?|hours?|dates?|rates?|speed|"
    r"performance|bandwidth|latency|overhead|throughput|cpu|[kmgtp]?flops?|[kmgtp]i?b/s|jan|feb|mar|apr|may|jun|jul|"
    r"aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|pid|timestamp)\b|/s\b|/sec\b|/day\b|per second|#:#:#|#:#|%",
    re.IGNORECASE,
)
_SHOWN = 160

# Of one launch: lines without their numbers, and the numbers of each time such a line came.
_Lines = dict[str, list[tuple[str, ...]]]


@dataclass(frozen=True)
class Difference:
    """A line that differs between the fabrics and not between launches over one of them."""

    line: str
    first: str
    second: str


@dataclass(frozen=True)
class Agreement:
    """`varying` lines differ between launches over the same fabric; `timings` look like times and are no results."""

    lines: int
    varying: int
    timings: int
    differences: tuple[Difference, ...]

    @property
    def agree(self) -> bool:
        """Whether nothing differs that the fabric could be the cause of."""
        return not self.differences


def compare_outputs(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Compare what launches over one fabric printed with what launches over another did.

    ValueError unless there is at least one of each.
    """
    if not first or not second:
        raise ValueError("need what at least one launch over each fabric printed")
    sides = [[_lines_of(text) for text in texts] for texts in (first, second)]
    skeletons = list(dict.fromkeys(line for side in sides for launch in side for line in launch))
    varying = timings = 0
    differences = []
    for line in skeletons:
        counts = [{len(launch.get(line, ())) for launch in side} for side in sides]
        if any(len(one) > 1 for one in counts):
            varying += 1
        elif counts[0] != counts[1]:
            differences.append(Difference(_cut(line), *(_times(one.pop()) for one in counts)))
        elif found := _different_columns(line, sides):
            stable = [one for one in found if one is not None]
            if not stable:
                varying += 1
            elif _TIMING.search(line):
                timings += 1
            else:
                differences += stable
    return Agreement(len(skeletons), varying, timings, tuple(differences))


def _lines_of(text: str) -> _Lines:
    found: _Lines = {}
    for line in text.splitlines():
        skeleton = " ".join(_NUMBER.sub(f" {_HOLE} ", line).split())
        if skeleton:
            found.setdefault(skeleton, []).append(tuple(_NUMBER.findall(line)))
    return found


def _different_columns(line: str, sides: list[list[_Lines]]) -> list[Difference | None]:
    """One for each column of numbers that is not the same everywhere; None where launches of one fabric differ, too."""
    found: list[Difference | None] = []
    for column in range(len(sides[0][0].get(line, [()])[0])):
        values = [{tuple(sorted(row[column] for row in launch[line])) for launch in side} for side in sides]
        if values[0] == values[1] and len(values[0]) == 1:
            continue
        if any(len(one) > 1 for one in values):
            found.append(None)
        else:
            found.append(Difference(_cut(line), *(_cut(" ".join(one.pop())) for one in values)))
    return found


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
