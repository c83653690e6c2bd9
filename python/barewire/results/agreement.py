# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether a program's output is the same over two fabrics, apart from what varies between launches anyway; pure.

Lines are identified by their text without numbers, so that ranks may print in any order. For each such line each column
of numbers is compared separately, then the numbers that stand together in a line. Columns that vary between launches
over the same fabric are not compared; those that vary over one fabric only are named.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
# Stands for a number in a line's text. No program prints it.
_HOLE = "\0"
# Numbers in these lines are not results: times, rates and dates.
_TIMING = re.compile(
    r"\b(?:times?|timing|wall|elapsed|seconds?|secs?|s|msecs?|ms|usecs?|us|µs|ns|minutes?|hours?|dates?|rates?|speed|"
    r"performance|bandwidth|latency|overhead|throughput|cpu|[kmgtp]?flops?|[kmgtp]i?b/s|jan|feb|mar|apr|may|jun|jul|"
    r"aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|pid|timestamp)\b|/s\b|/sec\b|/day\b|per second|#:#:#|#:#|%",
    re.IGNORECASE,
)
_SHOWN = 160
# With fewer launches over a fabric, that they are alike says nothing about the next.
_LAUNCHES_TO_BE_STEADY = 3

# The lines of one launch, keyed by their text without numbers, with the numbers of each occurrence.
_Lines = dict[str, list[tuple[str, ...]]]


@dataclass(frozen=True)
class Difference:
    """A line that differs between the fabrics, and what it is in the launches over each.

    Each number of the line is shown as #, and as [#] if it is the one of several that differs.
    """

    line: str
    first: str
    second: str


@dataclass(frozen=True)
class Agreement:
    """`varying` lines differ between launches over the same fabric; `timings` contain times, which are not results.

    `unsteady` are those of the varying ones, without times, that are the same in all of at least three launches over
    the other fabric: no proof of a wrong result, but what one would look like that occurs only sometimes.
    """

    lines: int
    varying: int
    timings: int
    differences: tuple[Difference, ...]
    unsteady: tuple[Difference, ...] = ()

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
    differences: list[Difference] = []
    unsteady: list[Difference] = []
    for line in skeletons:
        contrasts = [*_contrasts(line, sides)]
        is_timing = _TIMING.search(_shown(line)) is not None
        if not contrasts:
            continue
        if stable := [each.difference for each in contrasts if not each.is_varying]:
            # Not that a line is there or not, which no clock decides.
            if is_timing and not contrasts[0].is_count:
                timings += 1
            else:
                differences += stable
            continue
        varying += 1
        if not is_timing:
            unsteady += [each.difference for each in contrasts if each.is_one_sided][:1]
    return Agreement(len(skeletons), varying, timings, tuple(differences), tuple(unsteady))


@dataclass(frozen=True)
class _Contrast:
    """What is not the same in all launches, as it is over each fabric."""

    difference: Difference
    is_varying: bool
    is_one_sided: bool
    is_count: bool = False


def _contrasts(line: str, sides: list[list[_Lines]]) -> Iterator[_Contrast]:
    """Yield how the occurrences of a line, each column of its numbers, or the combinations of these differ."""
    counts = [[_count_text(len(launch.get(line, ()))) for launch in side] for side in sides]
    if contrast := _contrast(line, counts):
        yield replace(contrast, is_count=True)
        return
    rows = [[launch[line] for launch in side] for side in sides]
    steady, count = [], line.count(_HOLE)
    for column in range(count):
        columns = [[" ".join(sorted(row[column] for row in launch)) for launch in side] for side in rows]
        if contrast := _contrast(_marked(line, column) if count > 1 else line, columns):
            yield contrast
        else:
            steady.append(column)
    if len(steady) > 1:
        together = [
            [" | ".join(sorted(" ".join(row[n] for n in steady) for row in launch)) for launch in side] for side in rows
        ]
        if contrast := _contrast(line, together):
            yield contrast


def _contrast(line: str, texts: list[list[str]]) -> _Contrast | None:
    """Return how the texts of all launches over each fabric differ; None if they do not."""
    different = [[*dict.fromkeys(side)] for side in texts]
    if different[0] == different[1] and len(different[0]) == 1:
        return None
    is_steady = [len(side) == 1 for side in different]
    shown = [_cut(" or ".join(side)) for side in (different if all(is_steady) else map(_counted, texts))]
    return _Contrast(
        Difference(_cut(_shown(line)), *shown),
        is_varying=not all(is_steady),
        is_one_sided=any(is_steady) and not all(is_steady) and min(map(len, texts)) >= _LAUNCHES_TO_BE_STEADY,
    )


def _counted(texts: list[str]) -> list[str]:
    """Return each of the texts once, with the number of launches that have it."""
    return [f"{text} ({count}×)" for text, count in Counter(texts).items()]


def _marked(line: str, column: int) -> str:
    """Return the line's beginning with one of its numbers marked, if that is in it."""
    # No more than is shown: this is done for each of a line's numbers, of which there may be a hundred thousand.
    parts = line[: _SHOWN + 1].split(_HOLE)
    if column + 1 >= len(parts):
        return line[: _SHOWN + 1]
    return _HOLE.join(parts[: column + 1]) + f"[{_HOLE}]" + _HOLE.join(parts[column + 1 :])


def _lines_of(text: str) -> _Lines:
    lines: _Lines = {}
    for line in text.replace(_HOLE, " ").splitlines():
        skeleton = " ".join(_NUMBER.sub(f" {_HOLE} ", line).split())
        if skeleton:
            lines.setdefault(skeleton, []).append(tuple(_NUMBER.findall(line)))
    return lines


def _count_text(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _shown(line: str) -> str:
    return line.replace(_HOLE, "#")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
