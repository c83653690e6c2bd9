# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which message sizes to measure next, so that straight lines between the measured ones describe a curve.

The rule is mpptest's (Gropp and Lusk 1999): both ends and the middle of an interval of sizes are measured; where linear
interpolation between the ends misses the middle by more than a threshold, both halves are treated likewise, until they
are no larger than a smallest interval. Launches differ, so a miss counts only if its own interval lies beyond the
threshold: noise measures points again, and never splits an interval.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from barewire.stats.confidence import CONFIDENCE

# One subject's time of a message, by size in bytes and then by round: values of one round are from one launch.
Curve = Mapping[int, Mapping[int, float]]
Verdict = Literal["missed", "held", "undecided"]

LAUNCHES_TO_JUDGE = 4  # with fewer, an accidentally small spread is too frequent
SIZES_MAX = 128  # measured sizes of one test; a noisy curve must not turn into a sweep of all sizes
# Chance of any wrong split in a round, whatever the number of intervals and curves.
_WRONG_SPLIT = 0.01
_TRIMMED_SHARE = 0.2  # of the misses at each end; Yuen 1974


@dataclass(frozen=True)
class Refinement:
    """When to split an interval: if interpolation misses its middle by more than `threshold`, a share of the time.

    Intervals of `smallest_bytes` and less are not split.
    """

    threshold: float = 0.05
    smallest_bytes: int = 32

    def __post_init__(self) -> None:
        """Reject invalid values with ValueError."""
        if not 0 < self.threshold < 1:
            raise ValueError(f"the threshold must be a share between 0 and 1 (0.05 is 5 %), not {self.threshold:g}")
        if self.smallest_bytes < 1:
            raise ValueError(f"the smallest interval must be 1 byte or more, not {self.smallest_bytes}")


class SizeInterval(NamedTuple):
    """An interval of sizes and its middle, in bytes."""

    low: int
    middle: int
    high: int


@dataclass(frozen=True)
class Measured:
    """What was measured of one test: `grid` are the sizes of the first round, ascending.

    `rounds` has the number of rounds in which each size was measured, `precise` the sizes at which every result is
    precise enough. All subjects have the same sizes; each has a curve or several.
    """

    grid: Sequence[int]
    rounds: Mapping[int, int]
    precise: Collection[int]
    curves: Sequence[Curve]


def next_sizes(measured: Measured, refinement: Refinement, *, launches_min: int, launches_max: int) -> tuple[int, ...]:
    """Return the sizes of the next round, ascending; none if the curves are known well enough.

    A size is measured in at least `launches_min` rounds, and again until it is precise or was measured `launches_max`
    times; until then also if it sticks out from its neighbours. An interval's middle is measured together with its
    ends, so that what all sizes of a launch share cancels, until it is decided whether interpolation misses it.
    """
    wanted = {
        size
        for size in {*measured.grid, *measured.rounds}
        if measured.rounds.get(size, 0) < launches_min or size not in measured.precise
    }
    wanted |= _sticking_out(measured, refinement.threshold)
    wanted = {size for size in wanted if measured.rounds.get(size, 0) < launches_max}
    known = {*measured.grid, *measured.rounds}
    for interval in undecided(measured, refinement):
        if interval.middle not in known and len(known) >= SIZES_MAX:
            continue
        known.add(interval.middle)
        if measured.rounds.get(interval.middle, 0) < launches_max:
            wanted |= set(interval)
    return tuple(sorted(wanted))


def undecided(measured: Measured, refinement: Refinement) -> list[SizeInterval]:
    """Return the intervals of which it is not known whether interpolation misses their middle, ascending."""
    return sorted(interval for interval, verdict in verdicts(measured, refinement).items() if verdict == "undecided")


def verdicts(measured: Measured, refinement: Refinement) -> dict[SizeInterval, Verdict]:
    """Return the verdict about every interval of the grid, and about the halves of intervals that were missed."""
    intervals = list(_intervals(measured, refinement.smallest_bytes))
    # Every size is the middle of one interval at most.
    judgements = len(intervals) * len(measured.curves)
    by_curve = [_misses(curve, intervals) for curve in measured.curves]
    noises = [_Noise.of(list(misses.values())) for misses in by_curve]
    found: dict[SizeInterval, Verdict] = {}
    pending = list(pairwise(measured.grid))
    while pending:
        interval = _interval(*pending.pop())
        if interval.high - interval.low <= refinement.smallest_bytes:
            continue
        of_curves: set[Verdict] = set()
        for curve, misses, noise in zip(measured.curves, by_curve, noises, strict=True):
            if interval in misses:
                of_curves.add(noise.verdict(misses[interval], refinement.threshold, judgements))
            elif interval.middle in curve or interval.middle not in measured.rounds:
                of_curves.add("undecided")
        # A subject that needs the halves decides for all.
        first = [verdict for verdict in ("missed", "undecided", "held") if verdict in of_curves]
        found[interval] = first[0] if first else "undecided"
        if found[interval] == "missed":
            pending += [(interval.low, interval.middle), (interval.middle, interval.high)]
    return found


class _Miss(NamedTuple):
    """How far interpolation misses a middle, as a share of the interpolated time.

    The trimmed mean over the launches, its standard error with its degrees of freedom, and the launches.
    """

    mean: float
    error: float
    freedom: int
    launches: int


class _Noise(NamedTuple):
    """What launches of one curve differ by: the spread of a single launch's misses; degrees of freedom.

    Four launches often agree by accident; the spread over all intervals shows what to expect.
    """

    spread: float
    freedom: int

    @classmethod
    def of(cls, misses: Sequence[_Miss]) -> "_Noise":
        """Pool the misses: by the median, which disturbed intervals do not affect."""
        if not misses:
            return cls(0.0, 1)
        # The median of χ² with n degrees of freedom, divided by n (Wilson and Hilferty 1931).
        variances = [m.error**2 * m.launches / (1 - 2 / (9 * m.freedom)) ** 3 for m in misses]
        return cls(math.sqrt(float(np.median(variances))), sum(m.freedom for m in misses))

    def verdict(self, miss: _Miss, threshold: float, judgements: int) -> Verdict:
        """Return the verdict about one interval, one of so many judgements."""
        error = max(miss.error, self.spread / math.sqrt(miss.launches))
        if abs(miss.mean) - error * _quantile(1 - _WRONG_SPLIT / judgements / 2, self.freedom) > threshold:
            return "missed"
        if abs(miss.mean) + error * _quantile((1 + CONFIDENCE) / 2, self.freedom) <= threshold:
            return "held"
        return "undecided"


def _interval(low: int, high: int) -> SizeInterval:
    return SizeInterval(low, (low + high) // 2, high)


def _intervals(measured: Measured, smallest_bytes: int) -> Iterator[SizeInterval]:
    """Yield all intervals whose middle was measured, also those that are no longer missed."""
    pending = list(pairwise(measured.grid))
    while pending:
        interval = _interval(*pending.pop())
        if interval.high - interval.low > smallest_bytes and interval.middle in measured.rounds:
            yield interval
            pending += [(interval.low, interval.middle), (interval.middle, interval.high)]


def _misses(curve: Curve, intervals: Sequence[SizeInterval]) -> dict[SizeInterval, _Miss]:
    """Return the misses of the intervals with enough launches."""
    found = {}
    for interval in intervals:
        low, middle, high = (curve.get(size, {}) for size in interval)
        rounds = sorted(low.keys() & middle.keys() & high.keys())
        if len(rounds) >= LAUNCHES_TO_JUDGE:
            shares = [_miss(interval, low[each], middle[each], high[each]) for each in rounds]
            found[interval] = _trimmed(np.sort(shares))
    return found


def _miss(interval: SizeInterval, low_time: float, middle_time: float, high_time: float) -> float:
    share = (interval.middle - interval.low) / (interval.high - interval.low)
    return middle_time / ((1 - share) * low_time + share * high_time) - 1


def _trimmed(values: np.typing.NDArray[np.float64]) -> _Miss:
    """Return the trimmed mean of sorted values, and its standard error from the winsorized variance (Yuen 1974)."""
    count = len(values)
    cut = int(_TRIMMED_SHARE * count)
    kept = count - 2 * cut
    winsorized = np.clip(values, values[cut], values[count - cut - 1])
    error = float(np.std(winsorized, ddof=1)) * math.sqrt((count - 1) / (kept * (kept - 1)))
    return _Miss(float(np.mean(values[cut : count - cut])), error, kept - 1, count)


def _sticking_out(measured: Measured, threshold: float) -> set[int]:
    """Return the sizes whose median lies beyond the threshold from the line between its neighbours, in any curve."""
    found = set()
    for curve in measured.curves:
        medians = {size: float(np.median(list(times.values()))) for size, times in curve.items() if times}
        sizes = sorted(size for size in medians if size in measured.rounds)
        for low, middle, high in zip(sizes, sizes[1:], sizes[2:], strict=False):
            interval = SizeInterval(low, middle, high)
            if abs(_miss(interval, *(medians[size] for size in interval))) > threshold:
                found.add(middle)
    return found


@cache
def _quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's distribution."""
    from scipy import special  # imported late, as in `intervals`

    return float(special.stdtrit(freedom, probability))
