# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics agree with those of statsmodels, on samples of unequal sizes and spreads.

It has neither a bootstrap of medians nor exact rank tests: test_stats.py compares those with scipy and by enumeration.
"""

import numpy as np
import pytest

from barewire.models.hockney import fit_hockney
from barewire.models.times import Times
from barewire.stats.comparison import compare_over_sizes, holm
from barewire.stats.intervals import geometric_interval, mean_interval
from barewire.stats.paired import paired_ratio
from barewire.stats.published import implied_p
from barewire.stats.welch import equivalence_p, welch

pytest.importorskip("statsmodels", reason="statsmodels is missing: make setup")

from statsmodels.regression.linear_model import WLS
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.nonparametric import rank_compare_2indep
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttest_ind, ttost_ind

# Launches of both sides, and the spread of the second; that of the first is 0.2.
SHAPES = [(6, 6, 0.2), (8, 12, 0.5), (50, 7, 0.05)]


def sides(count_a: int, count_b: int, spread: float) -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(count_a)
    return list(generator.normal(5, 0.2, count_a)), list(generator.normal(5.2, spread, count_b))


@pytest.mark.parametrize("count", [1, 2, 24, 72])
def test_holm(count: int) -> None:
    p_values = np.random.default_rng(count).beta(0.3, 3, count)
    p_values[count // 2] = p_values[0]
    assert holm(list(p_values)) == pytest.approx(multipletests(p_values, method="holm")[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_welch_and_the_interval_of_the_difference(shape: tuple[int, int, float], confidence: float) -> None:
    a, b = sides(*shape)
    found = welch(a, b, confidence=confidence)
    assert found is not None
    assert (found.t, found.p, found.df) == pytest.approx(ttest_ind(a, b, usevar="unequal"))
    means = CompareMeans(DescrStatsW(a), DescrStatsW(b))
    interval = means.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    assert found.interval == pytest.approx(interval)
    least, most = implied_p(*interval, (len(a), len(b)), confidence=confidence)
    assert least <= found.p <= most


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("margin", [0.05, 0.3, 1.0])
def test_equivalence(shape: tuple[int, int, float], margin: float) -> None:
    a, b = sides(*shape)
    found = welch(a, b)
    assert found is not None
    assert equivalence_p(found, margin) == pytest.approx(ttost_ind(a, b, -margin, margin, usevar="unequal")[0])


# Where the sides do not overlap, the variance that statsmodels divides by is 0.
@pytest.mark.filterwarnings("ignore::RuntimeWarning:statsmodels")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_comparison_uses_the_same_tests_of_logarithms(shape: tuple[int, int, float]) -> None:
    """Both tests of three sizes, corrected, and the size of the effect."""
    pairs = [(a, [value * factor for value in b]) for a, b in [sides(*shape)] for factor in (0.96, 1.0, 1.1)]
    compared = compare_over_sizes(pairs, lower_is_better=True)
    p_values = [ttest_ind(np.log(a), np.log(b), usevar="unequal")[1] for a, b in pairs]
    assert [each.log_welch_p_holm for each in compared] == pytest.approx(multipletests(p_values, method="holm")[1])
    for each, (a, b) in zip(compared, pairs, strict=True):
        margin = np.log1p(each.margin)
        expected = ttost_ind(np.log(a), np.log(b), -margin, margin, usevar="unequal")[0]
        assert each.equivalence_p == pytest.approx(expected)
        assert each.cliffs_delta == pytest.approx(2 * rank_compare_2indep(a, b).prob1 - 1)


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_means_and_paired_ratios(confidence: float) -> None:
    a, b = sides(12, 12, 0.5)
    assert mean_interval(a, confidence) == pytest.approx(DescrStatsW(a).tconfint_mean(alpha=1 - confidence))
    logs = DescrStatsW(np.log(np.divide(a, b)))
    ratio = paired_ratio(a, b, confidence=confidence)
    assert ratio.value == pytest.approx(np.exp(logs.mean)) and ratio.p == pytest.approx(logs.ttest_mean(0)[1])
    interval = tuple(np.exp(logs.tconfint_mean(alpha=1 - confidence)))
    assert ratio.interval == pytest.approx(interval)
    assert geometric_interval(np.divide(a, b), confidence) == pytest.approx(interval)


def test_a_line_through_times_is_the_one_of_least_relative_squares() -> None:
    sizes = tuple(2**exponent for exponent in range(3, 15))
    truth = 8 + 0.01 * np.asarray(sizes)
    times = Times(sizes, truth * np.random.default_rng(3).normal(1, 0.01, (6, len(sizes))))
    design = np.column_stack([np.ones(len(sizes)), sizes])
    alpha, slope = WLS(times.medians, design, weights=times.medians**-2).fit().params
    fit = fit_hockney(times)
    assert fit.alpha_us is not None and fit.us_per_byte is not None
    assert (fit.alpha_us.value, fit.us_per_byte.value) == pytest.approx((alpha, slope), rel=1e-6)
