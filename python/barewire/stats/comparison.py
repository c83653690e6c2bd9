# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Comparison of two sets of launches over several message sizes: which is faster, by how much, how certainly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, finite, without_precision_warnings

Outcome = Literal["A faster", "B faster", "no difference", "undecided"]
Pair = tuple[Sequence[float], Sequence[float]]

SIGNIFICANCE = 0.05
RESAMPLES = 4999  # the interval's ends then vary by less than 0.2 % of the spread between seeds
EXACT_ARRANGEMENTS_MAX = 20_000  # all splits of 8 + 8 launches (12870) are enumerated, more are sampled


@dataclass(frozen=True)
class Comparison:
    """A against B at one size. `ratio` is median(A) / median(B); `ratio_ci95` is None below 6 launches of either.

    `*_p_holm` are corrected over the sizes compared together. `cliffs_delta` is P(A > B) - P(A < B), in -1 … 1. Unlike
    Hedges' g it needs neither a normal distribution nor a spread: the spread between launches is often almost 0, and g
    is then 80 where it only means "always". The ratio carries the magnitude.
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
    "A faster" or "B faster" if one of the two tests, each corrected by Holm over all sizes of this call, is below 0.025
    (half of 0.05, because there are two) and the interval of the ratio excludes 1; "no difference" if that interval
    lies within ±`margin` around 1, which is decided first: differences too small to matter do not count; otherwise
    "undecided". Both tests are used, because they fail in different cases: with 6 launches each the smallest possible p
    of the rank test is 0.002, too large for a correction over 24 sizes; and a single delayed launch makes Welch's test
    miss a difference that all others show. ValueError for an empty set, values that are not above 0, or a margin
    outside 0 … 1.
    """
    if not 0 < margin < 1:
        raise ValueError(f"the margin must be a share between 0 and 1 (0.02 is 2 %), not {margin}")
    generator = np.random.default_rng(seed)
    single = [_compare(_positive(a), _positive(b), generator) for a, b in pairs]
    welch = holm([each.welch_p if each.welch_p is not None else 1.0 for each in single])
    ranks = holm([each.mann_whitney_p for each in single])
    corrected = [
        replace(
            each,
            welch_p_holm=None if each.welch_p is None else welch_p,
            mann_whitney_p_holm=rank_p,
            margin=margin,
        )
        for each, welch_p, rank_p in zip(single, welch, ranks, strict=True)
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


def welch_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return two-sided p of Welch's t test; None if a side has one launch. Two constant sides give 1 or 0."""
    x, y = finite(a), finite(b)
    if min(len(x), len(y)) < 2:
        return None
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        return 1.0 if x[0] == y[0] else 0.0
    from scipy import stats  # imported late, as in `intervals`

    with without_precision_warnings():
        return float(stats.ttest_ind(x, y, equal_var=False).pvalue)


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return (two-sided p, U of A): exact without ties, otherwise over the arrangements of the pooled values."""
    x, y = finite(a), finite(b)
    ties = len(np.unique(np.concatenate([x, y]))) < len(x) + len(y)
    # The seed is fixed: a p value must not differ between two reads of the same run.
    from scipy import stats

    if ties and min(len(x), len(y)) == 1:
        # scipy does not permute a single value: any of the pooled ones could be it.
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
        # A ratio is judged, so the test uses logarithms: a spread is then the same share on both sides.
        welch_p=welch_p(list(np.log(a)), list(np.log(b))),
        mann_whitney_p=rank_p,
        cliffs_delta=2 * u / (len(a) * len(b)) - 1,
    )


def _ratio_interval(
    a: NDArray[np.float64], b: NDArray[np.float64], generator: np.random.Generator
) -> tuple[float, float] | None:
    """Percentile bootstrap that resamples the launches of each side. BCa's acceleration is undefined for a median."""
    if min(len(a), len(b)) < LAUNCHES_FOR_INTERVAL:
        return None
    draws_a = np.median(generator.choice(a, (RESAMPLES, len(a))), axis=1)
    draws_b = np.median(generator.choice(b, (RESAMPLES, len(b))), axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws_a / draws_b, [tail, 1 - tail])
    return float(low), float(high)


def _verdict(comparison: Comparison, *, lower_is_better: bool) -> Outcome:
    interval = comparison.ratio_ci95
    if interval is not None and interval[0] >= 1 - comparison.margin and interval[1] <= 1 + comparison.margin:
        return "no difference"
    welch_p = 1.0 if comparison.welch_p_holm is None else comparison.welch_p_holm
    significant = min(welch_p, comparison.mann_whitney_p_holm) < SIGNIFICANCE / 2
    excludes_one = interval is None or not interval[0] <= 1 <= interval[1]
    if not (significant and excludes_one) or comparison.ratio == 1:
        return "undecided"
    return "A faster" if (comparison.ratio < 1) == lower_is_better else "B faster"


def _positive(values: Sequence[float]) -> NDArray[np.float64]:
    array = finite(values)
    if not (array > 0).all():
        raise ValueError("times and rates must be above 0, but a launch's median is not: check its samples")
    return array
