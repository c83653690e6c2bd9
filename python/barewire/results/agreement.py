# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether a program's output is the same over two fabrics, apart from what varies between launches anyway; pure.

Lines are identified by their text without numbers, so that ranks may print in any order. For each such line each column
of numbers is compared separately. Columns that vary between launches over the same fabric are not compared.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
_HOLE = "#"
# Numbers in these lines are not results: times, rates and dates.
_TIMING = re.compile(
    r"\b(?:times?|timing|wall|elapsed|seconds?|secs?|s|msecs?|ms|usecs?|us|µs|ns|minutes?|hours?|dates?|rates?|speed|"
    r"performance|bandwidth|latency|overhead|throughput|cpu|[kmgtp]?flops?|[kmgtp]i?b/s|jan|feb|mar|apr|may|jun|jul|"
    r"aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|pid|timestamp)\b|/s\b|/sec\b|/day\b|per second|#:#:#|#:#|%",
    re.IGNORECASE,
)
_SHOWN = 160

# The lines of one launch, keyed by their text without numbers, with the numbers of each occurrence.
_Lines = dict[str, list[tuple[str, ...]]]


@dataclass(frozen=True)
class Difference:
    """A line that differs between the fabrics, but not between launches over one of them."""

    line: str
    first: str
    second: str


@dataclass(frozen=True)
class Agreement:
    """`varying` lines differ between launches over the same fabric; `timings` contain times, which are not results."""

    lines: int
    varying: int
    timings: int
    differences: tuple[Difference, ...]

    @property
    def agree(self) -> bool:
        """Whether there is no difference that the fabric may have caused."""
        return not self.differences


def compare_outputs(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Compare the outputs of launches over one fabric with those over another.

    ValueError unless each has at least one launch.
    """
    if not first or not second:
        raise ValueError("need the output of at least one launch over each fabric")
    sides = [[_lines_of(text) for text in texts] for texts in (first, second)]
    skeletons = list(dict.fromkeys(line for side in sides for launch in side for line in launch))
    varying = timings = 0
    differences = []
    for line in skeletons:
        counts = [{len(launch.get(line, ())) for launch in side} for side in sides]
        if any(len(side_counts) > 1 for side_counts in counts):
            varying += 1
        elif counts[0] != counts[1]:
            differences.append(Difference(_cut(line), *(_count_text(side_counts.pop()) for side_counts in counts)))
        elif column_differences := _different_columns(line, sides):
            stable = [difference for difference in column_differences if difference is not None]
            if not stable:
                varying += 1
            elif _TIMING.search(line):
                timings += 1
            else:
                differences += stable
    return Agreement(len(skeletons), varying, timings, tuple(differences))


def _lines_of(text: str) -> _Lines:
    lines: _Lines = {}
    for line in text.splitlines():
        skeleton = " ".join(_NUMBER.sub(f" {_HOLE} ", line).split())
        if skeleton:
            lines.setdefault(skeleton, []).append(tuple(_NUMBER.findall(line)))
    return lines


def _different_columns(line: str, sides: list[list[_Lines]]) -> list[Difference | None]:
    """Return a difference for each column of numbers that differs; None if it varies within one fabric."""
    differences: list[Difference | None] = []
    for column in range(len(sides[0][0].get(line, [()])[0])):
        values = [{tuple(sorted(row[column] for row in launch[line])) for launch in side} for side in sides]
        if values[0] == values[1] and len(values[0]) == 1:
            continue
        if any(len(numbers) > 1 for numbers in values):
            differences.append(None)
        else:
            differences.append(Difference(_cut(line), *(_cut(" ".join(numbers.pop())) for numbers in values)))
    return differences


def _count_text(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
