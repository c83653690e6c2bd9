# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Overheads and opportunities from curves with known parameters and realistic noise."""

import numpy as np
import pytest

from barewire.models.logp import Parameters, hidden_computation, wire_latency_ns

GRID = np.linspace(0, 2000, 11)


def curve(flat_ns: float, added_ns: float) -> np.ndarray:
    hidden = flat_ns - added_ns
    return np.where(hidden >= GRID, flat_ns, added_ns + GRID)


@pytest.mark.parametrize("added", [50.0, 333.0, 700.0, 999.0])
def test_a_clean_curve_yields_its_parameters_exactly(added):
    """Also where C' lies between two points of the grid."""
    found = hidden_computation(GRID, curve(1000, added))
    assert found.hidden_ns == pytest.approx(1000 - added)
    assert found.overhead_ns == pytest.approx(added) and found.added_ns == pytest.approx(added)
    assert found.flat_ns == pytest.approx(1000)
    assert found.availability == pytest.approx(1 - added / 1000)


def test_the_order_of_points_does_not_matter():
    shuffled = np.random.default_rng(3).permutation(len(GRID))
    times = curve(1000, 400)
    assert hidden_computation(GRID[shuffled], times[shuffled]) == hidden_computation(GRID, times)


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_one_disturbed_point_move_results_by_less_than_five_percent(seed):
    generator = np.random.default_rng(seed)
    times = curve(1000, 400) * generator.normal(1, 0.02, len(GRID))
    times[generator.integers(0, len(GRID))] *= 1.5
    found = hidden_computation(GRID, times)
    assert found.hidden_ns == pytest.approx(600, abs=50) and found.overhead_ns == pytest.approx(400, abs=50)


def test_where_nothing_is_hidden_the_whole_time_is_overhead():
    found = hidden_computation(GRID, 500 + GRID)
    assert found.hidden_ns == pytest.approx(0) and found.overhead_ns == pytest.approx(500)
    assert found.availability == pytest.approx(0)


def test_a_curve_that_jumps_hides_up_to_its_last_flat_point():
    """Messages cost 300 ns more once no rank waits for them: C' is the unchanged part."""
    times = np.where(GRID <= 800, 1000.0, GRID + 500)
    found = hidden_computation(GRID, times)
    assert found.hidden_ns == 800 and found.added_ns == pytest.approx(500)


def test_hidden_computation_never_exceeds_the_time():
    """A jump right where the computation reaches the time: overheads are not negative."""
    times = np.where(GRID <= 1000, np.maximum(990.0, GRID), GRID + 500)
    found = hidden_computation(GRID, times)
    assert found.hidden_ns == found.flat_ns == 990 and found.overhead_ns == 0 and found.added_ns == pytest.approx(500)


def test_a_completely_hidden_computation_is_rejected_with_advice():
    with pytest.raises(ValueError, match="larger --reach"):
        hidden_computation(GRID / 4, np.full(len(GRID), 1000.0))


@pytest.mark.parametrize(
    ("computation", "time", "says"),
    [
        ([0, 1, 2], [1, 1, 2], "more --points"),
        ([0, 1, 2, 3], [1, 1, 2], "one time for each"),
        ([0, 1, 2, 3], [1, float("nan"), 2, 3], "not a finite number"),
        ([0, 1, 2, 3], [0, 1, 2, 3], "times above 0"),
        ([0, 1, 2, -3], [1, 1, 2, 3], "0 or more"),
        ([10, 20, 30, 40], [20, 30, 40, 50], "must begin with none"),
    ],
)
def test_bad_curves_are_rejected_with_advice(computation, time, says):
    with pytest.raises(ValueError, match=says):
        hidden_computation(computation, time)


def test_latency_opportunity_and_bound_follow_from_the_parameters():
    small = Parameters(8, eel_ns=5000, os_ns=1500, or_ns=1000)
    large = Parameters(1024, eel_ns=9000, os_ns=2500, or_ns=3000)
    assert small.opportunity_ns == 7500 and small.keeps_bound
    assert wire_latency_ns([large, small]) == 2500
    assert not Parameters(8, eel_ns=1000, os_ns=1500, or_ns=1000).keeps_bound
    with pytest.raises(ValueError, match="run logp"):
        wire_latency_ns([])
