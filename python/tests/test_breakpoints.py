# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Break points are found at their known positions, with an interval that contains them, and nowhere else.

The independent check is scipy's: a global optimiser over the position of one break and both lines, without our code.
"""

import bisect
import math

import numpy as np
import pytest
from scipy import optimize

from barewire.models.breakpoints import Piecewise, find_breakpoints
from barewire.models.causes import Limit

SIZES = tuple(sorted({round(2 ** (n / 3)) for n in range(3, 61)}))


def law(size: float, *, eager: int = 65536, mtu: int = 1500) -> float:
    """Return µs: a short frame's time, a second frame above the MTU, and a handshake above the eager limit."""
    time = 3.0 + 0.0008 * size
    if size > mtu:
        time += 1.5
    return time + 25 if size > eager else time


def measured(seed: int, launches: int = 6, spread: float = 0.01, **limits: int) -> list[list[float]]:
    generator = np.random.default_rng(seed)
    return [[law(size, **limits) * generator.lognormal(0, spread) for _ in range(launches)] for size in SIZES]


@pytest.mark.parametrize("eager", [16384, 65536])
@pytest.mark.parametrize("seed", range(5))
def test_break_points_are_found_at_their_positions(seed: int, eager: int) -> None:
    found = find_breakpoints(SIZES, measured(seed, eager=eager))
    assert len(found.breaks) == 2
    for found_break, truth in zip(found.breaks, (1500, eager), strict=True):
        assert (
            Limit("", truth).explains(found_break)
            and found_break.low <= found_break.last_before < found_break.first_after <= found_break.high
        )
    assert found.breaks[1].jump == pytest.approx(25, rel=0.25)
    assert found.pieces[0].alpha == pytest.approx(3.0, rel=0.03)
    assert found.pieces[2].per_byte == pytest.approx(0.0008, rel=0.03)
    assert found.error < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_launches_that_differ_as_a_whole_hide_no_break(seed: int) -> None:
    """As where a launch's two processes have cores that are near to each other, or far apart."""
    generator = np.random.default_rng(seed)
    factors = generator.choice([0.7, 1.0], 12)
    times = [list(of_size * factors) for of_size in np.array(measured(seed, launches=12))]
    found = find_breakpoints(SIZES, times)
    assert [SIZES[SIZES.index(point.first_after) - 1] for point in found.breaks] == [1290, 65536]
    assert found.pieces[0].alpha == pytest.approx(3.0 * float(np.median(factors)), rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_straight_line_has_no_break(seed: int) -> None:
    generator = np.random.default_rng(seed)
    times = [[(3 + 0.0008 * size) * generator.lognormal(0, 0.03) for _ in range(6)] for size in SIZES]
    assert find_breakpoints(SIZES, times).breaks == ()


def test_a_bend_without_a_jump_is_a_break_within_its_interval() -> None:
    times = [[max(2.0 + 0.001 * size, 0.0021 * size - 7.0)] for size in SIZES]
    (bend,) = find_breakpoints(SIZES, times).breaks
    corner = 9.0 / 0.0011
    assert bend.low <= corner <= bend.high and abs(bend.jump) < 0.1 * law(corner)


def test_noise_widens_the_interval_which_never_is_narrower_than_the_gap_between_sizes() -> None:
    def width(spread: float) -> float:
        found = find_breakpoints(SIZES, measured(3, spread=spread, mtu=1 << 30))
        return math.log(found.breaks[0].high / found.breaks[0].low)

    assert width(0.002) <= width(0.2) and width(0.002) >= math.log(2) / 3 - 0.01


def test_changes_below_the_tolerance_are_no_break() -> None:
    times = [[(100 + 0.001 * size) * (1.01 if size > 1000 else 1)] for size in SIZES]
    assert find_breakpoints(SIZES, times).breaks == ()
    assert len(find_breakpoints(SIZES, times, tolerance=0.001).breaks) == 1


def test_one_break_agrees_with_scipys_optimiser() -> None:
    """On one launch, which has no others to be compared with."""
    times = measured(11, launches=1, mtu=1 << 30)
    medians = np.array([np.median(of_size) for of_size in times])
    sizes = np.array(SIZES, dtype=float)

    def cost(parameters: np.ndarray) -> float:
        place, a1, b1, a2, b2 = parameters
        line = np.where(np.log2(sizes) < place, a1 + b1 * sizes, a2 + b2 * sizes)
        return float(np.sum((line / medians - 1) ** 2))

    bounds = [(3, 19), (0, 10), (0, 0.01), (0, 100), (0, 0.01)]
    theirs = optimize.differential_evolution(cost, bounds, rng=1, maxiter=3000, tol=1e-10, polish=True)
    (ours,) = find_breakpoints(SIZES, times).breaks
    assert ours.last_before < 2 ** theirs.x[0] <= ours.first_after * (1 + 1e-9)
    assert cost_of(find_breakpoints(SIZES, times), medians) <= theirs.fun * (1 + 1e-6)
    assert cost_of(find_breakpoints(SIZES, times), medians) == pytest.approx(theirs.fun, rel=0.01)


def cost_of(found: Piecewise, medians: np.ndarray) -> float:
    return found.error**2 * len(medians)


def test_dynamic_programming_agrees_with_exhaustive_search() -> None:
    """Two breaks among few sizes: every pair of positions, each piece fitted by numpy."""
    sizes = SIZES[::4]
    times = [[law(size, eager=16384)] for size in sizes]
    medians = np.array(times)[:, 0]

    def best_line(first: int, end: int) -> float:
        rows = np.stack([1 / medians[first:end], np.array(sizes[first:end]) / medians[first:end]], axis=1)
        solved = np.linalg.lstsq(rows, np.ones(end - first), rcond=None)[0]
        return float(np.sum((rows @ solved - 1) ** 2))

    count = len(sizes)
    tried = {
        (i, j): best_line(0, i) + best_line(i, j) + best_line(j, count)
        for i in range(3, count - 5)
        for j in range(i + 3, count - 2)
    }
    first, second = min(tried, key=lambda positions: tried[positions])
    found = find_breakpoints(sizes, times)
    assert [found_break.first_after for found_break in found.breaks] == [sizes[first], sizes[second]]


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ((1, 2), [[1.0]] * 2),
        ((1, 3, 2), [[1.0]] * 3),
        ((1, 2, 3), [[1.0], [], [1.0]]),
        ((1, 2, 3), [[1.0], [0.0], [1]]),
    ],
)
def test_invalid_input_is_rejected(sizes: tuple[int, ...], times: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"need 3|above 0"):
        find_breakpoints(sizes, times)


def test_three_sizes_make_one_piece() -> None:
    found = find_breakpoints((0, 10, 20), [[1.0], [2.0], [3.0]])
    assert found.breaks == () and found.pieces[0].time(40) == pytest.approx(5)


def invented(seeds: int, spread: float, launches: int) -> float:
    """Return the share of straight lines, measured with this spread, in which a break is found."""
    found = 0
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        times = [(3 + 0.0008 * size) * generator.lognormal(0, spread, launches) for size in SIZES]
        found += bool(find_breakpoints(SIZES, [list(of_size) for of_size in times]).breaks)
    return found / seeds


def missed(seeds: int, spread: float) -> float:
    """Return the share of planted pairs of breaks of which one is missed, or is more than a size step away."""
    wrong = 0
    for seed in range(seeds):
        eager = int(np.random.default_rng(seed).choice([8192, 16384, 65536, 131072]))
        breaks = find_breakpoints(SIZES, measured(seed, spread=spread, eager=eager)).breaks
        found = [SIZES.index(point.first_after) for point in breaks]
        planted = [bisect.bisect_right(SIZES, truth) for truth in (1500, eager)]
        wrong += len(found) != 2 or any(abs(a - b) > 1 for a, b in zip(found, planted, strict=True))
    return wrong / seeds


@pytest.mark.parametrize(("spread", "launches"), [(0.01, 6), (0.2, 6), (0.2, 12)])
def test_no_break_is_invented(spread: float, launches: int) -> None:
    assert invented(100, spread, launches) <= 0.01


def test_planted_breaks_are_found_within_a_size_step() -> None:
    assert missed(60, 0.01) == 0


@pytest.mark.matrix
@pytest.mark.parametrize("launches", [6, 12])
@pytest.mark.parametrize("spread", [0.003, 0.01, 0.05, 0.2])
def test_fewer_than_one_of_a_hundred_lines_gets_a_break(spread: float, launches: int) -> None:
    assert invented(1000, spread, launches) < 0.01


@pytest.mark.matrix
def test_planted_breaks_of_a_thousand_seeds_are_found() -> None:
    assert missed(1000, 0.01) < 0.01
