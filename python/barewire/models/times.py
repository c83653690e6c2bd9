# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Times of messages by size, one for each launch, and the bootstrap over launches that all models share.

A launch is the experimental unit, so a resample draws whole launches. The interval is the estimate
± z·√(n / (n − 1)) standard errors of the bootstrap (z = 1.96 at 95 %), because resamples of n launches vary less than
launches do. With six to twelve launches it contains the truth as often as it says; percentiles, of which there are few
then, do not.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import resampled_medians

Floats = NDArray[np.float64]
Interval = tuple[float, float]

RESAMPLES = 999


class CannotSay(ValueError):
    """The measurements do not answer the question; the message says which ones would."""


@dataclass(frozen=True)
class Estimate:
    """A value and its interval, None below 6 launches (8 at 99 %)."""

    value: float
    interval: Interval | None

    @property
    def surely_above_zero(self) -> bool:
        """Whether the whole interval is; without an interval, the value."""
        return self.value > 0 and (self.interval is None or self.interval[0] > 0)


@dataclass(frozen=True, eq=False)
class Times:
    """Times in µs: `values[launch, size]`; `sizes` in bytes, ascending. `confidence` is that of what is estimated."""

    sizes: tuple[int, ...]
    values: Floats
    confidence: float = CONFIDENCE

    @classmethod
    def of(
        cls,
        launches: Mapping[int, Sequence[float]],
        *,
        may_be_negative: bool = False,
        confidence: float = CONFIDENCE,
    ) -> Self:
        """Make a table from each size's launch medians in µs.

        A run that was cut short has fewer launches of some sizes: only complete launches count, and a size that most
        launches lack is left out. ValueError for no value, or one that is not finite, or not above 0.
        """
        most = max((len(values) for values in launches.values()), default=0)
        if most == 0:
            raise CannotSay("no launch has a time; measure again")
        kept = {size: values for size, values in sorted(launches.items()) if 2 * len(values) > most}
        complete = min(len(values) for values in kept.values())
        table = np.array([values[:complete] for values in kept.values()], dtype=np.float64).T
        if not np.isfinite(table).all() or not (may_be_negative or (table > 0).all()) or min(kept) < 0:
            raise ValueError("times must be finite and above 0, and sizes 0 or more; measure again")
        return cls(tuple(kept), table, confidence)

    def at(self, sizes: Collection[int]) -> Self:
        """Return the table of some of its sizes."""
        chosen = [number for number, size in enumerate(self.sizes) if size in sizes]
        return type(self)(tuple(self.sizes[number] for number in chosen), self.values[:, chosen], self.confidence)

    @property
    def launches(self) -> int:
        """Number of launches."""
        return len(self.values)

    @property
    def medians(self) -> Floats:
        """Median over the launches, for each size."""
        return np.median(self.values, axis=0)

    def by_size(self) -> list[list[float]]:
        """Return the launches' times of each size."""
        return [[float(value) for value in column] for column in self.values.T]

    def draws(self, generator: np.random.Generator) -> Floats:
        """Return [draw, size]: the medians as measured, then those of `RESAMPLES` resamples of the launches."""
        chosen = generator.integers(0, self.launches, (RESAMPLES, self.launches))
        return np.concatenate([self.medians[None, :], resampled_medians(self.values[chosen])])


def estimate(draws: Floats, launches: int, confidence: float) -> Estimate:
    """Return the first draw with the interval of the others."""
    return Estimate(float(draws[0]), interval(draws, launches, confidence))


def interval(draws: Floats, launches: int, confidence: float) -> Interval | None:
    """Return the interval from the spread of the resamples around the first draw; None below 6 launches (8 at 99 %).

    What is positive in all resamples is positive: its spread is that of the logarithm.
    """
    if launches < launches_for_interval(confidence):
        return None
    is_positive = bool((draws > 0).all())
    values = np.log(draws) if is_positive else draws
    half = NormalDist().inv_cdf((1 + confidence) / 2) * (launches / (launches - 1)) ** 0.5 * float(np.std(values[1:]))
    low, high = float(values[0]) - half, float(values[0]) + half
    return (math.exp(low), math.exp(high)) if is_positive else (low, high)


def lines(sizes: Sequence[int], times: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Return α and β of the straight line through each row of `times`; at least two sizes.

    Errors are relative to `weights`, by default the times themselves.
    """
    scale = times if weights is None else weights
    u, v, w = 1 / scale, np.asarray(sizes, dtype=np.float64) / scale, times / scale
    uu, uv, vv = (u * u).sum(axis=-1), (u * v).sum(axis=-1), (v * v).sum(axis=-1)
    uw, vw = (u * w).sum(axis=-1), (v * w).sum(axis=-1)
    determinant = uu * vv - uv * uv
    return (vv * uw - uv * vw) / determinant, (uu * vw - uv * uw) / determinant


def are_ascending(sizes: Sequence[int]) -> bool:
    """Return whether each size is above the one before."""
    return all(a < b for a, b in pairwise(sizes))
