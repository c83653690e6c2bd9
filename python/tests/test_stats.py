# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics compared with published values and scipy, and their coverage by simulation."""

import math
import time
from itertools import combinations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from barewire.stats.comparison import compare_over_sizes, holm
from barewire.stats.confidence import launches_for_interval
from barewire.stats.intervals import is_precise, mean_interval, median_interval
from barewire.stats.ranks import mann_whitney
from barewire.stats.welch import equivalence_p, welch


def test_median_interval_of_six_launches_is_their_range():
    # 1 - 2 * 0.5**6 = 0.969: with six, only the whole range is certain enough.
    assert median_interval([3, 1, 2, 6, 5, 4]) == (1, 6)


def test_median_interval_of_ten_launches_is_second_to_ninth():
    # Binomial(10, 1/2): P(2 … 8 below) = 0.979, and third to eighth would be 0.891 (Conover, table A3).
    assert median_interval(list(range(1, 11))) == (2, 9)


def test_median_interval_needs_six_launches():
    assert median_interval([1, 2, 3, 4, 5]) is None


def test_median_interval_contains_the_median_at_least_93_percent_of_the_time_for_skewed_values():
    assert _coverage(median_interval, launches=12) >= 0.93


def test_the_coverage_check_fails_for_an_interval_that_is_too_narrow():
    def quartiles(values):
        return tuple(np.quantile(values, [0.4, 0.6]))

    assert _coverage(quartiles, launches=12) < 0.93


def test_mean_interval_agrees_with_students_by_hand():
    # n = 4, mean 5, s = 2.5820, t(0.975, 3) = 3.1824: half width 4.1085.
    low, high = mean_interval([2, 4, 6, 8])
    assert (low, high) == (pytest.approx(0.8915, abs=1e-4), pytest.approx(9.1085, abs=1e-4))


def test_mean_interval_of_one_launch_is_none_and_of_equal_ones_is_a_point():
    assert mean_interval([3.0]) is None
    assert mean_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)


def test_precise_means_half_the_interval_within_two_percent_of_the_median():
    tight = [100, 101, 102, 99, 98, 100.5]  # half of 98 … 102 is 2 of 100.25
    assert is_precise(tight)
    assert not is_precise([*tight[:5], 104])
    assert not is_precise(tight, relative_half_width=0.01)
    assert not is_precise([100.0] * 5), "five launches have no interval, so they are never precise"


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_unusable_values_are_rejected(values):
    for function in (median_interval, mean_interval, is_precise):
        with pytest.raises(ValueError, match="launch"):
            function(values)


def test_holm_agrees_with_r():
    # R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") and an unsorted one, by hand: 4*.01, 3*.02, 2*.03→.06, 1*.5
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.2])


def test_holm_bounds_the_family_wise_error_and_no_correction_does_not():
    # 20 true null hypotheses, 500 times: Holm may reject any in about 5 %, uncorrected tests do in about 64 %.
    p_values = np.random.default_rng(3).random((500, 20))
    assert np.mean([min(holm(list(row))) < 0.05 for row in p_values]) < 0.08
    assert np.mean(p_values.min(axis=1) < 0.05) > 0.5


def test_welch_agrees_with_students_sleep_data():
    # R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p-value = 0.07939
    group_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    group_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    # 95 percent confidence interval: -3.3654832 0.2054832
    found = welch(group_1, group_2)
    assert (found.t, found.df, found.p) == (
        pytest.approx(-1.8608, abs=5e-5),
        pytest.approx(17.776, abs=5e-4),
        pytest.approx(0.07939, abs=5e-6),
    )
    assert found.difference == pytest.approx(0.75 - 2.33)
    assert found.interval == (pytest.approx(-3.3654832, abs=1e-6), pytest.approx(0.2054832, abs=1e-6))
    low, high = welch(group_1, group_2, confidence=0.99).interval
    assert low < found.interval[0] and high > found.interval[1]


def test_welch_of_constant_launches_and_of_one_launch_cannot_say():
    assert welch([2, 2, 2], [2, 2]) is None
    assert welch([2, 2, 2], [3, 3]) is None
    assert welch([0.1 + 0.2, 0.3], [3, 3]) is None, "they differ in the last bit only"
    assert welch([2], [3, 3]) is None
    assert welch([2, 2], [3, 3.5]) is not None


def test_equivalence_agrees_with_one_sided_tests_of_scipy():
    generator = np.random.default_rng(4)
    a, b = generator.normal(5, 0.2, 9), generator.normal(5.1, 0.3, 12)
    for margin in (0.05, 0.3, 1.0):
        above = scipy_stats.ttest_ind(a + margin, b, equal_var=False, alternative="greater").pvalue
        below = scipy_stats.ttest_ind(a - margin, b, equal_var=False, alternative="less").pvalue
        assert equivalence_p(welch(list(a), list(b)), margin) == pytest.approx(max(above, below))
    with pytest.raises(ValueError, match="margin"):
        equivalence_p(welch([1, 2], [1, 2]), 0)


def test_mann_whitney_is_exact_also_with_ties():
    # Complete separation of 4 and 4: 2 of 70 arrangements.
    complete = mann_whitney([1, 2, 3, 4], [5, 6, 7, 8])
    assert (complete.u, complete.p) == (0.0, pytest.approx(2 / 70))
    # All pairs tie at one value per side: {1,1} against {2,2}: 2 of 6 arrangements are as extreme.
    assert mann_whitney([1, 1], [2, 2]).p == pytest.approx(2 / 6)
    assert mann_whitney([5, 5, 5], [5, 5, 5]).p == 1.0
    # A single launch on one side, or on both.
    single = mann_whitney([9], [1, 2, 2])
    assert (single.u, single.p) == (3.0, pytest.approx(1 / 2))
    assert (mann_whitney([3], [3]).u, mann_whitney([3], [3]).p) == (0.5, 1.0)


@pytest.mark.parametrize("digits", [9, 0])
def test_mann_whitney_counts_all_arrangements(digits: int):
    generator = np.random.default_rng(4)
    for count_a, count_b in ((2, 3), (6, 6), (4, 9), (9, 4)):
        a, b = (np.round(generator.normal(size=count), digits) for count in (count_a, count_b))
        ranks = scipy_stats.rankdata([*a, *b])
        sums = np.array([sum(chosen) for chosen in combinations(ranks, count_a)])
        observed = ranks[:count_a].sum()
        expected = 2 * min(np.mean(sums <= observed), np.mean(sums >= observed))
        assert mann_whitney(a, b).p == pytest.approx(min(1.0, expected))


def test_mann_whitney_of_many_launches_agrees_with_scipy_and_takes_no_minute():
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=50), generator.normal(0.5, size=50)
    assert mann_whitney(a, b).p == pytest.approx(scipy_stats.mannwhitneyu(a, b, method="exact").pvalue)
    # With ties: beyond 8 launches each they were sampled, not counted.
    a, b = np.round(a, 1), np.round(b, 1)
    assert mann_whitney(a, b).p == pytest.approx(scipy_stats.mannwhitneyu(a, b, method="asymptotic").pvalue, rel=0.1)
    began = time.monotonic()
    a, b = generator.normal(size=300), generator.normal(0.1, size=300)
    # scipy's exact p, which takes it a minute.
    assert mann_whitney(a, b).p == pytest.approx(0.6672200, rel=1e-3)
    assert mann_whitney(np.round(a, 1), np.round(b, 1)).p == pytest.approx(0.66722, rel=0.05)
    assert time.monotonic() - began < 10


def test_a_third_of_the_time_is_a_faster_and_the_interval_contains_the_ratio():
    (comparison,) = compare_over_sizes([(_launches(1.2), _launches(3.6, seed=1))], lower_is_better=True)
    assert comparison.verdict == "A faster"
    assert comparison.ratio_interval[0] < 1.2 / 3.6 < comparison.ratio_interval[1]
    assert comparison.cliffs_delta == -1
    assert comparison.log_welch_p_holm < 1e-6


def test_one_delayed_launch_does_not_hide_what_all_others_show():
    held_up = [680, 678, 682, 690, 679, 676, 678, 682, 686, 688, 688, 3]
    (comparison,) = compare_over_sizes([(held_up, _launches(206, 12))], lower_is_better=False)
    assert comparison.log_welch_p_holm > 0.025
    assert comparison.verdict == "A faster"


def test_the_larger_of_two_rates_is_faster():
    (comparison,) = compare_over_sizes([(_launches(900), _launches(300, seed=1))], lower_is_better=False)
    assert comparison.verdict == "A faster"
    (comparison,) = compare_over_sizes([(_launches(300), _launches(900, seed=1))], lower_is_better=False)
    assert comparison.verdict == "B faster"


def test_equal_subjects_are_no_difference_and_noisy_ones_undecided():
    (comparison,) = compare_over_sizes([(_launches(5, 12), _launches(5, 12, seed=1))], lower_is_better=True)
    assert comparison.verdict == "no difference"
    (comparison,) = compare_over_sizes(
        [(_launches(5, 8, spread=0.2), _launches(5, 8, 0.2, seed=1))], lower_is_better=True
    )
    assert comparison.verdict == "undecided"


def test_a_difference_within_the_margin_does_not_count_and_a_smaller_margin_finds_it():
    pair = (_launches(5.05, 20, 0.002), _launches(5, 20, 0.002, seed=1))
    assert compare_over_sizes([pair], lower_is_better=True)[0].verdict == "no difference"
    assert compare_over_sizes([pair], lower_is_better=True, margin=0.001)[0].verdict == "B faster"


def test_few_launches_yield_no_interval_and_no_verdict():
    (comparison,) = compare_over_sizes([(_launches(5, 4), _launches(5, 4, seed=1))], lower_is_better=True)
    assert comparison.ratio_interval is None
    assert comparison.verdict == "undecided"
    for launches in (2, 5):
        pair = _launches(1, launches), _launches(5, launches, seed=1)
        (comparison,) = compare_over_sizes([pair], lower_is_better=True)
        assert comparison.verdict == "undecided", "each side may have met one of a machine's two speeds"
    (comparison,) = compare_over_sizes([(_launches(1, 6), _launches(5, 6, seed=1))], lower_is_better=True)
    assert comparison.verdict == "A faster"
    (comparison,) = compare_over_sizes([([1.0], [5.0])], lower_is_better=True)
    assert comparison.verdict == "undecided", "one launch each decides nothing"
    assert comparison.log_welch_p_holm is None


def test_constant_launches_are_told_apart_by_ranks_only():
    (comparison,) = compare_over_sizes([([2.0] * 6, [3.0] * 6)], lower_is_better=True)
    assert comparison.welch is None and comparison.log_welch_p is None and comparison.equivalence_p is None
    assert comparison.verdict == "A faster"
    (comparison,) = compare_over_sizes([([2.0] * 3, [3.0] * 3)], lower_is_better=True)
    assert comparison.verdict == "undecided", "three of each are in this order by chance once in ten times"


def test_the_difference_has_its_own_unit_and_two_intervals():
    (comparison,) = compare_over_sizes([(_launches(3.0, 12), _launches(2.0, 12, seed=1))], lower_is_better=True)
    low, high = comparison.difference_interval
    assert low < 1 < high and comparison.difference == pytest.approx(1, abs=0.05)
    assert comparison.welch.difference == pytest.approx(1, abs=0.05)
    assert comparison.welch.interval[0] < 1 < comparison.welch.interval[1]


def test_more_confidence_gives_wider_intervals_and_fewer_verdicts():
    pair = (_launches(5.1, 12, 0.01), _launches(5, 12, 0.01, seed=1))
    at_95, at_99 = (
        compare_over_sizes([pair], lower_is_better=True, margin=0.001, confidence=confidence)[0]
        for confidence in (0.95, 0.99)
    )
    assert at_99.ratio_interval[0] < at_95.ratio_interval[0] and at_99.ratio_interval[1] > at_95.ratio_interval[1]
    assert at_95.log_welch_p == at_99.log_welch_p
    weak = (_launches(5.05, 8, 0.01), _launches(5, 8, 0.01, seed=1))
    verdicts = [
        compare_over_sizes([weak], lower_is_better=True, margin=0.001, confidence=confidence)[0].verdict
        for confidence in (0.8, 0.999)
    ]
    assert verdicts == ["B faster", "undecided"]


def test_an_interval_needs_more_launches_the_more_confident_it_is():
    assert [launches_for_interval(confidence) for confidence in (0.5, 0.9, 0.95, 0.99, 0.999)] == [2, 5, 6, 8, 11]
    for confidence in (0.49, 0.9999, 95, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            launches_for_interval(confidence)
        with pytest.raises(ValueError, match="confidence"):
            compare_over_sizes([], lower_is_better=True, confidence=confidence)
    (comparison,) = compare_over_sizes(
        [(_launches(5, 7), _launches(5, 7, seed=1))], lower_is_better=True, confidence=0.99
    )
    assert comparison.ratio_interval is None and comparison.difference_interval is None


def test_correction_over_sizes_can_undo_a_single_significance():
    lone = (_launches(5.2, 8, 0.03), _launches(5, 8, 0.03, seed=5))
    alone = compare_over_sizes([lone], lower_is_better=True)[0]
    others = [(_launches(5, 8, 0.03, seed=n), _launches(5, 8, 0.03, seed=n + 50)) for n in range(10, 30)]
    together = compare_over_sizes([lone, *others], lower_is_better=True)[0]
    assert alone.log_welch_p == together.log_welch_p
    assert together.log_welch_p_holm >= alone.log_welch_p_holm


def test_the_false_alarm_rate_between_equal_subjects_is_small():
    pairs = [(_launches(5, 8, seed=2 * n), _launches(5, 8, seed=2 * n + 1)) for n in range(150)]
    # Each size is a separate family here: at most 5 % of them may be called different.
    verdicts = [compare_over_sizes([pair], lower_is_better=True, margin=1e-6)[0].verdict for pair in pairs]
    assert sum(verdict.endswith("faster") for verdict in verdicts) <= 15


def test_the_ratio_interval_covers_the_true_ratio():
    pairs = [(_launches(6, 9, seed=2 * n), _launches(5, 9, seed=2 * n + 1)) for n in range(200)]
    found = compare_over_sizes(pairs, lower_is_better=True)
    covered = np.mean([comparison.ratio_interval[0] <= 1.2 <= comparison.ratio_interval[1] for comparison in found])
    assert covered >= 0.93


def test_the_same_seed_gives_the_same_answer():
    pair = (_launches(1), _launches(2, seed=1))
    assert compare_over_sizes([pair], lower_is_better=True) == compare_over_sizes([pair], lower_is_better=True)


@pytest.mark.parametrize("margin", [0, -0.1, 1, 2])
def test_a_margin_that_is_not_a_share_is_rejected(margin):
    with pytest.raises(ValueError, match="margin"):
        compare_over_sizes([], lower_is_better=True, margin=margin)


def test_values_that_are_not_times_are_rejected():
    with pytest.raises(ValueError, match="above 0"):
        compare_over_sizes([([0.0, 1], [1.0, 2])], lower_is_better=True)


def _launches(centre: float, count: int = 8, spread: float = 0.01, seed: int = 0) -> list[float]:
    return list(centre * np.exp(np.random.default_rng(seed).normal(0, spread, count)))


def _coverage(interval, *, launches: int, trials: int = 400) -> float:
    truth = scipy_stats.lognorm(1.0).median()
    draws = np.random.default_rng(7).lognormal(0, 1.0, (trials, launches))
    bounds = [interval(list(row)) for row in draws]
    return float(np.mean([low <= truth <= high for low, high in bounds]))
