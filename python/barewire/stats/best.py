# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One subject's time compared with the best of several others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import finite, resampled_medians

# An end of the interval then varies by less than 1 % of its width between seeds; scoreboards have thousands of rows.
_RESAMPLES = 1999


@dataclass(frozen=True)
class BestRatio:
    """Ratio of the median time to the smallest of the others' medians, and the name of that one; above 1 is slower.

    `interval` is a bootstrap interval. With too few launches of any subject for one (6 at 95 %) it is the wider range
    of all launches, and `is_range` is true.
    """

    ratio: float
    interval: tuple[float, float]
    best: str
    is_range: bool


def ratio_to_best(
    times: Sequence[float],
    competitors: Mapping[str, Sequence[float]],
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> BestRatio:
    """Compare a subject's launches with those of others, by name; all are times above 0 in one unit.

    The bootstrap selects the best anew in each resample: which of several equally fast ones is best is part of the
    uncertainty. ValueError if anything is missing or not above 0.
    """
    if not competitors:
        raise ValueError("there is nothing to compare with")
    ours, theirs = _positive(times), {name: _positive(values) for name, values in competitors.items()}
    medians = {name: float(np.median(values)) for name, values in theirs.items()}
    best = min(medians, key=lambda name: medians[name])
    is_range = min(len(values) for values in (ours, *theirs.values())) < launches_for_interval(confidence)
    interval = _range(ours, theirs) if is_range else _bootstrap(ours, theirs, seed, confidence)
    return BestRatio(float(np.median(ours)) / medians[best], interval, best, is_range)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios above 0; ValueError for none."""
    return float(np.exp(np.log(_positive(ratios)).mean()))


def _range(ours: NDArray[np.float64], theirs: Mapping[str, NDArray[np.float64]]) -> tuple[float, float]:
    slowest_best = min(float(values.max()) for values in theirs.values())
    fastest_best = min(float(values.min()) for values in theirs.values())
    return float(ours.min()) / slowest_best, float(ours.max()) / fastest_best


def _bootstrap(
    ours: NDArray[np.float64], theirs: Mapping[str, NDArray[np.float64]], seed: int, confidence: float
) -> tuple[float, float]:
    generator = np.random.default_rng(seed)
    above, *below = (
        resampled_medians(generator.choice(values, (_RESAMPLES, len(values)))) for values in (ours, *theirs.values())
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(above / np.min(below, axis=0), [tail, 1 - tail])
    return float(low), float(high)


def _positive(values: Sequence[float]) -> NDArray[np.float64]:
    array = finite(values)
    if not (array > 0).all():
        raise ValueError("times and ratios must be above 0")
    return array
