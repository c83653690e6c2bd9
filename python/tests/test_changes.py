# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Steps over many runs, and trends within one: planted ones are found, and none are made up."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from barewire.stats.changes import find_changes, has_noise
from barewire.stats.trend import trend


def _runs(levels, *, seed=0, launches=8, spread=0.01, scatter=0.0):
    """Runs with these levels, launches with a spread around them, and each run a bit off by itself."""
    generator = np.random.default_rng(seed)
    return {
        number: list(level * np.exp(generator.normal(0, scatter) + generator.normal(0, spread, launches)))
        for number, level in enumerate(levels)
    }


def _changes(levels, *, confidence=0.95, margin=0.02, **noise):
    return find_changes([_runs(levels, **noise)], confidence=confidence, margin=margin)[0]


def test_a_step_is_found_at_its_run_with_its_size():
    (change,) = _changes([5, 5, 5, 5, 6, 6, 6], confidence=0.99)
    assert change.at == 4
    assert change.interval[0] < 1.2 < change.interval[1] and change.ratio == pytest.approx(1.2, abs=0.02)
    assert change.p < 1e-3


def test_a_step_in_the_last_run_and_one_that_is_undone_are_found():
    assert [change.at for change in _changes([5] * 7 + [5.5])] == [7]
    up, down = _changes([5, 5, 5, 6, 6, 6, 5, 5, 5])
    assert (up.at, down.at) == (3, 6)
    assert up.ratio == pytest.approx(1.2, abs=0.02) and down.ratio == pytest.approx(1 / 1.2, abs=0.02)


def test_two_runs_are_compared_like_welchs_test():
    runs = _runs([5, 5.4])
    ((change,),) = find_changes([runs])
    expected = scipy_stats.ttest_ind(np.log(runs[1]), np.log(runs[0]), equal_var=False)
    low, high = np.exp(expected.confidence_interval(0.95))
    assert change.p == pytest.approx(expected.pvalue)
    assert change.interval == (pytest.approx(low), pytest.approx(high))


def test_a_step_is_named_by_the_number_of_its_run():
    ((change,),) = find_changes([{3: [5.0, 5.1, 5.05], 17: [6.0, 6.1, 6.05]}])
    assert change.at == 17


def test_a_step_that_does_not_matter_is_none():
    levels = [5] * 6 + [5.04] * 6
    assert _changes(levels, spread=0.001) == []
    assert [change.at for change in _changes(levels, spread=0.001, margin=0.002)] == [6]


def test_runs_that_scatter_by_themselves_hide_a_step_of_their_size():
    """Launches alone would make a step of nearly each run: they have a fiftieth of the runs' spread."""
    found = [_changes([5] * 10, seed=seed, spread=0.001, scatter=0.05) for seed in range(40)]
    assert sum(map(bool, found)) <= 6


def test_the_scatter_is_that_of_all_sequences():
    """A step of one sequence that is plain beside quiet ones is none where all runs scatter."""
    stepped = _runs([5] * 5 + [5.2] * 5, seed=1)
    quiet = [_runs([5] * 10, seed=seed) for seed in range(2, 12)]
    restless = [_runs([5] * 10, seed=seed, scatter=0.05) for seed in range(2, 12)]
    assert [change.at for change in find_changes([stepped, *quiet])[0]] == [5]
    assert find_changes([stepped, *restless])[0] == []


def test_steps_are_rarely_made_up():
    """At 99 %: of 200 sequences without a step about 2 may have one."""
    found = [_changes([5] * 8, seed=seed, confidence=0.99, margin=1e-6) for seed in range(200)]
    assert sum(map(bool, found)) <= 5


def test_more_sequences_searched_together_need_more_evidence():
    weak, others = _runs([5, 5.1], spread=0.01), [_runs([5, 5], seed=seed) for seed in range(1, 200)]
    alone, together = find_changes([weak], margin=0.001)[0], find_changes([weak, *others], margin=0.001)[0]
    assert len(alone) == 1 and together == []


def test_launches_without_a_spread_are_judged_by_ranks():
    printed = {0: [0.25] * 6, 1: [0.25] * 6, 2: [0.31] * 6}
    ((change,),) = find_changes([printed], confidence=0.99)
    # One of the C(18, 6) arrangements at each end, and two places.
    assert (change.at, change.p) == (2, pytest.approx(2 * 2 / math.comb(18, 6)))
    assert change.ratio == pytest.approx(0.31 / 0.25) and change.interval == pytest.approx((change.ratio, change.ratio))
    levels = [0.25, 0.25, 0.25, 0.31, 0.31, 0.31, 0.25, 0.25]
    (both,) = find_changes([{number: [level] * 6 for number, level in enumerate(levels)}])
    assert [each.at for each in both] == [3, 6]
    assert find_changes([{0: [0.25] * 2, 1: [0.31] * 2}]) == [[]], "too few"
    assert find_changes([{number: [0.25] * 6 for number in range(5)}]) == [[]]


def test_runs_without_a_spread_of_launches_may_scatter_by_themselves():
    levels = [0.25, 0.26, 0.25, 0.26, 0.25, 0.26, 0.25]
    restless = {number: [level] * 6 for number, level in enumerate(levels)}
    assert find_changes([restless]) == [[]] and has_noise(restless)
    assert not has_noise({0: [0.25] * 6, 1: [0.31] * 6}) and has_noise({0: [0.25, 0.26], 1: [0.31] * 6})


def test_unusable_runs_are_rejected():
    for first in ([1.0], [1.0, 0.0], [1.0, float("nan")], []):
        with pytest.raises(ValueError, match="launch"):
            find_changes([{0: first, 1: [2.0, 2.1]}])
    with pytest.raises(ValueError, match="confidence"):
        find_changes([_runs([5, 5])], confidence=1)
    assert find_changes([]) == []


def test_a_trend_agrees_with_scipy_and_has_a_size():
    values = [100, 102, 101, 104, 106, 105, 108, 110]
    found = trend(values)
    expected = scipy_stats.kendalltau(range(8), values)
    assert (found.tau, found.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert found.change == pytest.approx(1.1, abs=0.01)
    assert trend(values[::-1]).change == pytest.approx(1 / 1.1, abs=0.01)


def test_a_trend_needs_four_launches_that_differ():
    assert trend([1, 2, 3]) is None
    assert trend([2, 2, 2, 2, 2]) is None
    for values in ([], [1, 2, 3, -1], [1, 2, 3, float("inf")]):
        with pytest.raises(ValueError):
            trend(values)


def test_a_trend_is_rarely_made_up():
    generator = np.random.default_rng(5)
    p_values = [trend(list(generator.lognormal(0, 0.02, 10))).p for _ in range(400)]
    assert np.mean(np.array(p_values) < 0.05) < 0.08
