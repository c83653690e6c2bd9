# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Steps in a sequence of runs: from which run on a value is another one, by how much, how certainly."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import finite
from barewire.stats.ranks import mann_whitney

_Floats = NDArray[np.float64]

# With fewer runs nothing tells a step from runs that scatter by themselves, so they are taken not to.
RUNS_FOR_SCATTER = 4
# Median of χ² with one degree of freedom.
_MEDIAN_SQUARE = 0.4549
_SQUARE_OF_NOTHING = np.finfo(np.float64).eps ** 2
# Of logarithms that are equal but for rounding.
_NO_DIFFERENCE = 1e-12


@dataclass(frozen=True)
class Change:
    """From run number `at` on, values are `ratio` times those since the previous change.

    `interval` is the ratio's t interval, and without a spread the range of the runs' ratios; `p` is corrected for the
    choice of the place and the number of sequences.
    """

    at: int
    ratio: float
    interval: tuple[float, float]
    p: float


def find_changes(
    sequences: Sequence[Mapping[int, Sequence[float]]], *, confidence: float = CONFIDENCE, margin: float = 0.02
) -> list[list[Change]]:
    """Find the steps in each of several sequences of runs: number of the run → values above 0, two launches or more.

    Binary segmentation (Scott and Knott 1974): the most significant split if it is beyond doubt, then those of its
    parts. A split is judged by the t test of the logarithms' means before and after it. The standard error follows from
    the launches. If successive runs elsewhere, in all sequences, differ by more than that explains, it grows by the
    Birge ratio (1932), estimated by the median, which a few steps do not disturb. p is corrected for all possible
    splits of all sequences: of searches without any step at most 1 - `confidence` find one. Changes whose interval
    lies within ±`margin` do not count.

    Where launches do not differ within their runs, a split is judged by the ranks of the launches; if most of the
    sequence's successive runs differ nevertheless, by a t test with that scatter. ValueError for a run with fewer
    values, values that are not above 0, or a confidence outside 0.5 … 0.999.
    """
    launches_for_interval(confidence)
    summaries = [_Sequence.of(runs) for runs in sequences]
    scatter = _Scatter(summaries)
    return [
        _Search(summary, scatter, (1 - confidence) / len(sequences)).changes(confidence, margin, len(sequences))
        for summary in summaries
    ]


@dataclass(frozen=True)
class _Sequence:
    """The logarithms of each run's launches, how many there are, their mean, and the variance of the mean."""

    numbers: list[int]
    logs: list[_Floats]
    counts: _Floats
    means: _Floats
    variances: _Floats

    @classmethod
    def of(cls, runs: Mapping[int, Sequence[float]]) -> "_Sequence":
        """Summarise a sequence in the order of its runs' numbers."""
        numbers = sorted(runs)
        values = [finite(runs[number]) for number in numbers]
        if not all(len(run) > 1 and (run > 0).all() for run in values):
            raise ValueError("steps need two or more launches of each run, with values above 0")
        logs = [np.log(run) for run in values]
        return cls(
            numbers,
            logs,
            np.array([len(run) for run in logs], dtype=np.float64),
            np.array([run.mean() for run in logs]),
            np.array([run.var(ddof=1) / len(run) for run in logs]),
        )


class _Scatter:
    """How much more successive runs differ than their launches explain, over all sequences."""

    def __init__(self, sequences: Sequence[_Sequence]) -> None:
        self.runs = len({number for each in sequences for number in each.numbers})
        pairs = [
            (*each.numbers[n : n + 2], (each.means[n + 1] - each.means[n]) ** 2 / explained)
            for each in sequences
            for n in range(len(each.numbers) - 1)
            if (explained := each.variances[n] + each.variances[n + 1]) > _SQUARE_OF_NOTHING
        ]
        self.before, self.after, self.squares = np.array(pairs, dtype=np.float64).reshape(-1, 3).T
        self._known: dict[int, float] = {}

    def ratio(self, at: int) -> float:
        """Return the Birge ratio, at least 1, without the successive runs that a split before run `at` separates."""
        if at not in self._known:
            elsewhere = self.squares[(self.after < at) | (self.before >= at)]
            is_known = self.runs >= RUNS_FOR_SCATTER and len(elsewhere) > 0
            self._known[at] = max(1.0, float(np.median(elsewhere)) / _MEDIAN_SQUARE) if is_known else 1.0
        return self._known[at]


@dataclass(frozen=True)
class _Split:
    """Difference of the logarithms' means, after minus before, with its standard error and degrees of freedom."""

    difference: float
    error: float
    df: float

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        from scipy import stats  # imported late, as in `intervals`

        return float(2 * stats.t.sf(abs(self.difference) / self.error, self.df))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the t interval of the difference."""
        from scipy import stats

        half = float(stats.t.ppf((1 + confidence) / 2, self.df)) * self.error
        return self.difference - half, self.difference + half


@dataclass(frozen=True)
class _SplitByRanks:
    """The same of launches without a spread, with the range of the runs' differences."""

    difference: float
    p: float
    range: tuple[float, float]

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the range, whatever the confidence."""
        return self.range


class _Search:
    """The search for steps in one sequence."""

    def __init__(self, runs: _Sequence, scatter: _Scatter, significance: float) -> None:
        self.runs, self.scatter, self.significance = runs, scatter, significance
        self.places = len(runs.numbers) - 1

    def changes(self, confidence: float, margin: float, sequences: int) -> list[Change]:
        """Return the steps that matter, with p corrected for the number of sequences."""
        bounds = [0, *self.splits(0, self.places + 1), self.places + 1]
        found = []
        for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
            split = self.split(before, at, after)
            # What was beyond doubt beside a longer part may not be so beside its final neighbour.
            if split is None or split.p * self.places >= self.significance:
                continue
            low, high = (math.exp(end) for end in split.interval(confidence))
            if not (low >= 1 - margin and high <= 1 + margin):
                p = split.p * self.places * sequences
                found.append(Change(self.runs.numbers[at], math.exp(split.difference), (low, high), p))
        return found

    def splits(self, start: int, end: int) -> list[int]:
        """Return where the runs from `start` up to, but not including, `end` change, in ascending order."""
        candidates = [(split.p, at) for at in range(start + 1, end) if (split := self.split(start, at, end))]
        if not candidates:
            return []
        p, at = min(candidates)
        if p * self.places >= self.significance:
            return []
        return [*self.splits(start, at), at, *self.splits(at, end)]

    def split(self, start: int, at: int, end: int) -> _Split | _SplitByRanks | None:
        """Return the runs `at` … `end` - 1 against `start` … `at` - 1; None if they are the same."""
        means, variance, uncertainty = [], 0.0, 0.0
        for part in (slice(start, at), slice(at, end)):
            counts, variances = self.runs.counts[part], self.runs.variances[part]
            shares = counts / counts.sum()
            means.append(float(shares @ self.runs.means[part]))
            variance += float(shares**2 @ variances)
            uncertainty += float(shares**4 @ (variances**2 / (counts - 1)))
        if variance <= _SQUARE_OF_NOTHING:
            return self._without_spread(start, at, end, means[1] - means[0])
        # Satterthwaite 1946, also for what the runs' scatter adds; a median is worth half as many runs.
        ratio, runs_df = self.scatter.ratio(self.runs.numbers[at]), max(1.0, (self.scatter.runs - 2) / 2)
        df = ratio**2 / (uncertainty / variance**2 + (ratio - 1) ** 2 / runs_df)
        return _Split(means[1] - means[0], math.sqrt(variance * ratio), df)

    def _without_spread(self, start: int, at: int, end: int, difference: float) -> _Split | _SplitByRanks | None:
        if abs(difference) <= _NO_DIFFERENCE:
            return None
        squares = np.diff(self.runs.means) ** 2
        elsewhere = np.delete(squares, at - 1) if len(squares) >= RUNS_FOR_SCATTER else squares
        if variance := _variance(elsewhere):
            error = math.sqrt(variance * (1 / (at - start) + 1 / (end - at)))
            return _Split(difference, error, max(1.0, (len(self.runs.means) - 2) / 2))
        before, after = self.runs.means[start:at], self.runs.means[at:end]
        one, other = (np.concatenate(self.runs.logs[part]) for part in (slice(start, at), slice(at, end)))
        p = mann_whitney(list(one), list(other)).p
        bounds = float(after.min() - before.max()), float(after.max() - before.min())
        return _SplitByRanks(difference, p, bounds)


def has_noise(runs: Mapping[int, Sequence[float]]) -> bool:
    """Return whether launches differ within their runs, or most successive runs do."""
    summary = _Sequence.of(runs)
    return bool((summary.variances > _SQUARE_OF_NOTHING).any()) or _variance(np.diff(summary.means) ** 2) > 0


def _variance(squares: _Floats) -> float:
    """Return the variance of one run from the squared differences of successive ones; 0 if there are too few."""
    variance = float(np.median(squares)) / _MEDIAN_SQUARE / 2 if len(squares) + 1 >= RUNS_FOR_SCATTER else 0.0
    return variance if variance > _NO_DIFFERENCE**2 else 0.0
