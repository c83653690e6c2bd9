# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Who is faster, by how much, how sure: two sets of launches compared, over several message sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, finite, undoubted

Outcome = Literal["A faster", "B faster", "no difference", "undecided"]
Pair = tuple[Sequence[float], Sequence[float]]

SIGNIFICANCE = 0.05
RESAMPLES = 4999  # the interval's ends then move by less than 0.2 % of the spread between seeds
EXACT_ARRANGEMENTS_MAX = 20_000  # all splits of 8 + 8 launches (12870) are counted, more are sampled


@dataclass(frozen=True)
class Comparison:
    """A against B at one size. `ratio` is median(A) / median(B); `ratio_ci95` is None below 6 launches of either.

    `*_p_holm` are corrected over the sizes compared together. `cliffs_delta` is P(A > B) - P(A < B), in -1 … 1:
    it needs no normal distribution and no spread, whereas Hedges' g divides by a spread between launches that is
    often almost 0, and then says 80 where nothing but "always" is meant; the ratio carries the magnitude.
    """

    launches_a: int
    launches_b: int
    ratio: float
    ratio_ci95: tuple[float, float] | None
    welch_p: float | None
    mann_whitney_p: float
    cliffs_delta: float
    welch_p_holm: float | None = None
    mann_whitney_p_holm: float = math.nan
    margin: float = math.nan
    verdict: Outcome = "undecided"


def compare_over_sizes(
    pairs: Sequence[Pair], *, lower_is_better: bool, margin: float = 0.02, seed: int = 0
) -> list[Comparison]:
    """Compare A with B at each size; `pairs` holds (A's launch medians, B's launch medians) per size, same unit.

    The verdict at each size:
    "A faster" or "B faster" when one of the two tests, each corrected by Holm over all sizes of this call, is below
    0.025 (half of 0.05, because there are two) and the interval of the ratio leaves out 1; "no difference" when
    that interval lies within ±`margin` around 1, which is decided first: a difference too small to matter is none;
    otherwise "undecided".
    Both tests have a say, because each is blind where the other sees: with 6 launches each the smallest possible p
    of the rank test is 0.002, which no correction over 24 sizes survives; and one launch that was held up makes
    Welch's test blind to a difference that all the others show.
    ValueError for an empty set, values that are not above 0, or a margin outside 0 … 1.
    """
    if not 0 < margin < 1:
        raise ValueError(f"the margin is a share between 0 and 1 (0.02 is 2 %), not {margin}")
    generator = np.random.default_rng(seed)
    single = [_compare(_positive(a), _positive(b), generator) for a, b in pairs]
    welch = holm([one.welch_p if one.welch_p is not None else 1.0 for one in single])
    ranks = holm([one.mann_whitney_p for one in single])
    corrected = [
        replace(
            one,
            welch_p_holm=None if one.welch_p is None else welch_p,
            mann_whitney_p_holm=rank_p,
            margin=margin,
        )
        for one, welch_p, rank_p in zip(single, welch, ranks, strict=True)
    ]
    return [replace(one, verdict=_verdict(one, lower_is_better=lower_is_better)) for one in corrected]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p in the order given. ValueError for p outside 0 … 1.

    Source: Holm 1979; scipy has only the Benjamini procedures. Agrees with R's p.adjust(method = "holm").
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError("p values lie between 0 and 1")
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(count)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return [float(p) for p in adjusted]


def welch_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p of Welch's t test; None when a side has one launch. Two constant sides give 1 or 0."""
    x, y = finite(a), finite(b)
    if min(len(x), len(y)) < 2:
        return None
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        return 1.0 if x[0] == y[0] else 0.0
    from scipy import stats  # here, as in `intervals`

    with undoubted():
        return float(stats.ttest_ind(x, y, equal_var=False).pvalue)


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """(two-sided p, U of A): exact without ties, else over the arrangements of the pooled values."""
    x, y = finite(a), finite(b)
    ties = len(np.unique(np.concatenate([x, y]))) < len(x) + len(y)
    # A fixed seed: a p value must not differ between two readings of the same run.
    from scipy import stats

    if ties and min(len(x), len(y)) == 1:
        # scipy arranges no single value: any of the pooled ones could be it.
        distances = np.abs(stats.rankdata(np.concatenate([x, y])) - (len(x) + len(y) + 1) / 2)
        observed = distances[0 if len(x) == 1 else -1]
        return float(np.mean(distances >= observed)), float(stats.mannwhitneyu(x, y, method="asymptotic").statistic)
    method = stats.PermutationMethod(n_resamples=EXACT_ARRANGEMENTS_MAX, rng=np.random.default_rng(0))
    result = stats.mannwhitneyu(x, y, method=method if ties else "exact")
    return min(1.0, float(result.pvalue)), float(result.statistic)


def _compare(a: NDArray[np.float64], b: NDArray[np.float64], generator: np.random.Generator) -> Comparison:
    rank_p, u = mann_whitney(list(a), list(b))
    return Comparison(
        launches_a=len(a),
        launches_b=len(b),
        ratio=float(np.median(a) / np.median(b)),
        ratio_ci95=_ratio_interval(a, b, generator),
        # A ratio is judged, so the test sees logarithms: a spread then means the same share on both sides.
        welch_p=welch_p(list(np.log(a)), list(np.log(b))),
        mann_whitney_p=rank_p,
        cliffs_delta=2 * u / (len(a) * len(b)) - 1,
    )


def _ratio_interval(
    a: NDArray[np.float64], b: NDArray[np.float64], generator: np.random.Generator
) -> tuple[float, float] | None:
    """Percentile bootstrap: launches are resampled on each side. BCa's acceleration is not defined for a median."""
    if min(len(a), len(b)) < LAUNCHES_FOR_INTERVAL:
        return None
    draws_a = np.median(generator.choice(a, (RESAMPLES, len(a))), axis=1)
    draws_b = np.median(generator.choice(b, (RESAMPLES, len(b))), axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws_a / draws_b, [tail, 1 - tail])
    return float(low), float(high)


def _verdict(one: Comparison, *, lower_is_better: bool) -> Outcome:
    interval = one.ratio_ci95
    if interval is not None and interval[0] >= 1 - one.margin and interval[1] <= 1 + one.margin:
        return "no difference"
    welch_p = 1.0 if one.welch_p_holm is None else one.welch_p_holm
    significant = min(welch_p, one.mann_whitney_p_holm) < SIGNIFICANCE / 2
    apart = interval is None or not interval[0] <= 1 <= interval[1]
    if not (significant and apart) or one.ratio == 1:
        return "undecided"
    return "A faster" if (one.ratio < 1) == lower_is_better else "B faster"


def _positive(values: Sequence[float]) -> NDArray[np.float64]:
    array = finite(values)
    if not (array > 0).all():
        raise ValueError("times and rates are above 0; a launch's median is not: look at its samples")
    return array
