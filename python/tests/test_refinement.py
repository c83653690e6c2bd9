# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sizes are refined around planted breaks, in every curve and under noise, and nowhere else.

Launches are simulated: every round measures the sizes that the plan asks for, until it asks for none.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barewire.results.quantities import message_time_us
from barewire.stats import refinement
from barewire.stats.convergence import launches_to_converge, samples_to_converge
from barewire.stats.refinement import Measured, Refinement, next_sizes, undecided, verdicts

Law = Callable[[int], float]
GRID = tuple(1 << n for n in range(14))
MIDDLES = {(low + high) // 2 for low, high in pairwise(GRID) if high - low > 32}
MIN, MAX = 6, 12


def line(size: int) -> float:
    return 3 + 0.001 * size


def with_steps(*steps: tuple[int, float]) -> Law:
    """The line, longer by a share of it above each size."""
    return lambda size: line(size) * (1 + sum(share for above, share in steps if size > above))


def experiment(
    *laws: Law,
    seed: int = 0,
    spread: float = 0.01,
    disturbed: float = 0.0,
    rule: Refinement | None = None,
    spikes: dict[int, range] | None = None,
    precise: bool = True,
) -> Measured:
    """Measure until nothing is wanted. Each launch has a drift; `disturbed` values are up to twice as long.

    `spikes` are sizes that take half as long again in these rounds.
    """
    generator = np.random.default_rng(seed)
    curves: list[dict[int, dict[int, float]]] = [{} for _ in laws]
    rounds: Counter[int] = Counter()
    for number in range(1000):
        measured = Measured(GRID, rounds, set(rounds) if precise else set(), curves)
        sizes = next_sizes(measured, rule or Refinement(), launches_min=MIN, launches_max=MAX)
        if not sizes:
            return measured
        rounds.update(sizes)
        for law, curve in zip(laws, curves, strict=True):
            drift = generator.lognormal(0, 0.05)
            for size in sizes:
                time = law(size) * drift * generator.lognormal(0, spread)
                time *= 1 + generator.random() * (generator.random() < disturbed)
                time *= 1.5 if number in (spikes or {}).get(size, ()) else 1
                curve.setdefault(size, {})[number] = time
    raise AssertionError("it never ends")


def around(measured: Measured, position: int) -> tuple[int, int]:
    """Return the largest measured size up to a position, and the next."""
    return next((low, high) for low, high in pairwise(sorted(measured.rounds)) if low <= position < high)


@settings(max_examples=25, deadline=None)
@given(
    above=st.integers(1, 8191),
    share=st.floats(0.3, 3.0),
    smallest=st.integers(1, 200),
    seed=st.integers(0, 1000),
)
def test_a_step_is_located_within_the_smallest_interval(above: int, share: float, smallest: int, seed: int) -> None:
    measured = experiment(with_steps((above, share)), seed=seed, rule=Refinement(0.05, smallest))
    low, high = around(measured, above)
    assert high - low <= smallest


def test_steps_of_frames_and_of_the_eager_limit_are_all_located() -> None:
    measured = experiment(with_steps((1472, 0.4), (2944, 0.5), (4096, 1.0)), spread=0.015)
    for above in (1472, 2944, 4096):
        low, high = around(measured, above)
        assert high - low <= 32


def test_all_subjects_get_the_sizes_that_one_of_them_needs() -> None:
    measured = experiment(line, with_steps((1472, 0.3)))
    low, high = around(measured, 1472)
    assert high - low <= 32
    assert measured.curves[0].keys() == measured.curves[1].keys() == measured.rounds.keys()


def test_a_bend_is_refined_until_lines_describe_it() -> None:
    def bend(size: int) -> float:
        return max(2.0, 0.004 * size - 4)

    measured = experiment(bend, spread=0.003)
    sizes = sorted(measured.rounds)
    everywhere = np.arange(1, 8193)
    truth = np.array([bend(size) for size in everywhere])
    described = np.interp(everywhere, sizes, [bend(size) for size in sizes])
    # The corner deviates by up to twice as much as the middle of its interval.
    assert np.max(np.abs(described / truth - 1)) < 2 * 0.05
    assert np.max(np.abs(np.interp(everywhere, GRID, [bend(size) for size in GRID]) / truth - 1)) > 0.3
    added = measured.rounds.keys() - {*GRID, *MIDDLES}
    assert added and min(added) >= 1000, "nothing is wrong with the flat part"


@pytest.mark.parametrize(("spread", "disturbed"), [(0.01, 0.0), (0.03, 0.02), (0.1, 0.0)])
def test_a_straight_line_gets_no_further_sizes_however_noisy(spread: float, disturbed: float) -> None:
    invented = [
        seed
        for seed in range(40)
        if experiment(line, line, seed=seed, spread=spread, disturbed=disturbed).rounds.keys() > {*GRID, *MIDDLES}
    ]
    assert not invented


def test_that_check_fails_for_a_rule_that_ignores_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "_quantile", lambda *_: 0.0)
    assert any(experiment(line, seed=seed, spread=0.1).rounds.keys() > {*GRID, *MIDDLES} for seed in range(3))


def test_a_size_that_sticks_out_in_some_launches_is_measured_again_and_nothing_is_split() -> None:
    measured = experiment(line, spikes={1536: range(1, 4)})
    assert measured.rounds.keys() == {*GRID, *MIDDLES}
    assert measured.rounds[1536] == MAX and measured.rounds[96] == MIN
    assert np.median(list(measured.curves[0][1536].values())) == pytest.approx(line(1536), rel=0.1)


def test_a_size_that_sticks_out_in_all_launches_is_isolated() -> None:
    measured = experiment(line, spikes={1536: range(1000)})
    sizes = sorted(measured.rounds)
    position = sizes.index(1536)
    assert sizes[position + 1] - sizes[position - 1] <= 64


def test_sizes_are_measured_until_they_are_precise_or_the_launches_are_used_up() -> None:
    assert set(experiment(line).rounds.values()) == {MIN}
    assert set(experiment(line, precise=False).rounds.values()) == {MAX}


def test_what_noise_hides_is_said() -> None:
    measured = experiment(with_steps((1472, 0.12)), spread=0.1)
    assert undecided(measured, Refinement())
    assert "missed" not in verdicts(measured, Refinement()).values()
    assert not undecided(experiment(line), Refinement())


def test_a_curve_that_is_nowhere_straight_ends_at_a_number_of_sizes() -> None:
    def jagged(size: int) -> float:
        return 3 + (size * 2654435761 % 1000) / 100

    assert len(experiment(jagged, rule=Refinement(0.01, 1)).rounds) <= refinement.SIZES_MAX


def test_a_variant_that_leaves_sizes_out_does_not_decide_about_them() -> None:
    curve = {size: dict.fromkeys(range(MIN), line(size)) for size in (64, 96, 128)}
    some = {size: dict.fromkeys(range(MIN), line(size)) for size in (64, 128)}
    measured = Measured((64, 128), dict.fromkeys((64, 96, 128), MIN), {64, 96, 128}, [curve, some])
    assert next_sizes(measured, Refinement(), launches_min=MIN, launches_max=MAX) == ()


@pytest.mark.parametrize("threshold", [0, -0.1, 1, float("nan")])
def test_a_threshold_is_a_share_above_zero(threshold: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Refinement(threshold)
    with pytest.raises(ValueError, match="1 byte or more"):
        Refinement(0.05, 0)


def test_rates_become_times_of_a_message() -> None:
    assert message_time_us(8000.0, "Mbit/s", 1000) == 1.0
    assert message_time_us(250_000.0, "messages/s", 8) == 4.0
    assert message_time_us(2.0, "ms", 8) == 2000.0
    assert message_time_us(5.0, "KiB", 8) is None
    assert message_time_us(0.0, "Mbit/s", 8) is message_time_us(3.0, "us", 0) is None


def test_launches_to_converge_are_the_first_whose_interval_is_narrow() -> None:
    assert launches_to_converge([100, 101, 99, 100, 101, 99]) == 6
    assert launches_to_converge([100, 110, 99, 100, 101, 99, 100, 100, 100]) == 9
    assert launches_to_converge([100.0] * 5) is None
    assert launches_to_converge([100, 150] * 6) is None


def test_samples_to_converge_are_the_last_that_move_the_median() -> None:
    assert samples_to_converge([5.0] * 10) == 1
    assert samples_to_converge([9.0] * 4 + [5.0] * 20) == 9, "the median of eight is still 7"
    assert samples_to_converge([5.0, 9.0] * 3) is None
    assert samples_to_converge(np.linspace(1, 2, 100)) is None, "a drift never settles"
    generator = np.random.default_rng(1)
    wide, narrow = (samples_to_converge(5 * generator.lognormal(0, s, 3000)) or 0 for s in (0.2, 0.02))
    assert 100 < wide < 1500 and narrow < 20
    with pytest.raises(ValueError, match="above 0"):
        samples_to_converge([5.0], 0)
