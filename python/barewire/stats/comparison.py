# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Comparison of two sets of launches over several message sizes: which is faster, by how much, how certainly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import finite, resampled_medians
from barewire.stats.ranks import Ranks, mann_whitney
from barewire.stats.welch import Welch, equivalence_p, welch

Outcome = Literal["A faster", "B faster", "no difference", "undecided"]
Pair = tuple[Sequence[float], Sequence[float]]
Interval = tuple[float, float]

RESAMPLES = 4999  # the interval's ends then vary by less than 0.2 % of the spread between seeds
# So many resamples lie beyond each end of an interval, at any confidence.
_RESAMPLES_BEYOND = 25


@dataclass(frozen=True)
class Comparison:
    """A against B at one size; all intervals have the given `confidence`.

    `ratio` is median(A) / median(B), and `difference` median(A) - median(B), in the unit of the values; their bootstrap
    intervals are None with fewer launches than `launches_for_interval`. `welch` and `rank_test` are the tests of the
    values as papers print them, uncorrected; `log_welch_p` is Welch's test of the logarithms, and `equivalence_p` the
    two one-sided tests of them against `margin`. `*_holm` are corrected over the sizes compared together.

    `cliffs_delta` is P(A > B) - P(A < B), in -1 … 1. Unlike Hedges' g it needs neither a normal distribution nor a
    spread: the spread between launches is often almost 0, and g is then 80 where it only means "always". The ratio
    carries the magnitude.
    """

    launches_a: int
    launches_b: int
    confidence: float
    ratio: float
    ratio_interval: Interval | None
    difference: float
    difference_interval: Interval | None
    welch: Welch | None
    rank_test: Ranks
    log_welch_p: float | None
    equivalence_p: float | None
    cliffs_delta: float
    margin: float
    log_welch_p_holm: float | None = None
    rank_test_p_holm: float = math.nan
    verdict: Outcome = "undecided"

    @property
    def differs(self) -> bool:
        """Whether A and B differ beyond doubt: one of the two corrected tests says so, and the interval excludes 1.

        Launches too few for an interval differ never: if a machine has two speeds, each side may have met one of them.
        """
        welch_p = 1.0 if self.log_welch_p_holm is None else self.log_welch_p_holm
        significant = min(welch_p, self.rank_test_p_holm) < (1 - self.confidence) / 2
        interval = self.ratio_interval
        return significant and self.ratio != 1 and interval is not None and not interval[0] <= 1 <= interval[1]


def compare_over_sizes(
    pairs: Sequence[Pair],
    *,
    lower_is_better: bool,
    margin: float = 0.02,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[Comparison]:
    """Compare A with B at each size; `pairs` holds (A's launch medians, B's launch medians) per size, same unit.

    The verdict at each size:
    "A faster" or "B faster" if one of the two tests, each corrected by Holm over all sizes of this call, is below half
    of 1 - `confidence` (half, because there are two) and the interval of the ratio excludes 1; "no difference" if that
    interval lies within ±`margin` around 1, which is decided first: differences too small to matter do not count;
    otherwise "undecided", as with too few launches for an interval.
    So equal subjects are told apart at any of the sizes in at most 1 - `confidence` of all runs.
    Both tests are used, because they fail in different cases: with 6 launches each the smallest possible p of the rank
    test is 0.002, too large for a correction over 24 sizes; and a single delayed launch makes Welch's test miss a
    difference that all others show. ValueError for an empty set, values that are not above 0, a margin outside 0 … 1,
    or a confidence outside 0.5 … 0.999.
    """
    if not 0 < margin < 1:
        raise ValueError(f"the margin must be a share between 0 and 1 (0.02 is 2 %), not {margin}")
    launches_for_interval(confidence)
    generator = np.random.default_rng(seed)
    single = [_compare(_positive(a), _positive(b), margin, confidence, generator) for a, b in pairs]
    by_welch = holm([1.0 if each.log_welch_p is None else each.log_welch_p for each in single])
    by_ranks = holm([each.rank_test.p for each in single])
    corrected = [
        replace(each, log_welch_p_holm=None if each.log_welch_p is None else welch_p, rank_test_p_holm=rank_test_p)
        for each, welch_p, rank_test_p in zip(single, by_welch, by_ranks, strict=True)
    ]
    return [replace(each, verdict=_verdict(each, lower_is_better=lower_is_better)) for each in corrected]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values with Holm's step-down correction, in the given order. ValueError for p outside 0 … 1.

    Source: Holm 1979; scipy has only the Benjamini procedures. Agrees with R's p.adjust(method = "holm").
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("p values must be between 0 and 1")
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(count)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return [float(p) for p in adjusted]


def _compare(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    margin: float,
    confidence: float,
    generator: np.random.Generator,
) -> Comparison:
    ranks = mann_whitney(list(a), list(b))
    ratio_interval, difference_interval = _bootstrap(a, b, confidence, generator)
    of_means = welch(list(a), list(b), confidence=confidence)
    # A ratio is judged, so the test uses logarithms: a spread is then the same share on both sides.
    of_logs = None if of_means is None else welch(list(np.log(a)), list(np.log(b)))
    return Comparison(
        launches_a=len(a),
        launches_b=len(b),
        confidence=confidence,
        ratio=float(np.median(a) / np.median(b)),
        ratio_interval=ratio_interval,
        difference=float(np.median(a) - np.median(b)),
        difference_interval=difference_interval,
        welch=of_means,
        rank_test=ranks,
        log_welch_p=None if of_logs is None else of_logs.p,
        equivalence_p=None if of_logs is None else equivalence_p(of_logs, math.log1p(margin)),
        cliffs_delta=2 * ranks.u / (len(a) * len(b)) - 1,
        margin=margin,
    )


def _bootstrap(
    a: NDArray[np.float64], b: NDArray[np.float64], confidence: float, generator: np.random.Generator
) -> tuple[Interval | None, Interval | None]:
    """Return the intervals of ratio and difference of the medians: percentile bootstrap of the launches of each side.

    BCa's acceleration is undefined for a median.
    """
    if min(len(a), len(b)) < launches_for_interval(confidence):
        return None, None
    tail = (1 - confidence) / 2
    resamples = max(RESAMPLES, math.ceil(_RESAMPLES_BEYOND / tail) - 1)
    draws_a, draws_b = (resampled_medians(generator.choice(side, (resamples, len(side)))) for side in (a, b))
    ratios, differences = (np.quantile(draws, [tail, 1 - tail]) for draws in (draws_a / draws_b, draws_a - draws_b))
    return (float(ratios[0]), float(ratios[1])), (float(differences[0]), float(differences[1]))


def _verdict(comparison: Comparison, *, lower_is_better: bool) -> Outcome:
    interval, margin = comparison.ratio_interval, comparison.margin
    if interval is not None and interval[0] >= 1 - margin and interval[1] <= 1 + margin:
        return "no difference"
    if not comparison.differs:
        return "undecided"
    return "A faster" if (comparison.ratio < 1) == lower_is_better else "B faster"


def _positive(values: Sequence[float]) -> NDArray[np.float64]:
    array = finite(values)
    if not (array > 0).all():
        raise ValueError("times and rates must be above 0, but a launch's median is not: check its samples")
    return array
