# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Differences between layers: values, coverage of their intervals, and the effect of a disturbed round."""

import numpy as np
import pytest

from barewire.stats.steps import steps

ROUNDS = 8


def spread(centre: float) -> list[float]:
    """Return launches of 8 rounds, 1 % around a centre."""
    return [centre * (1 + 0.01 * offset) for offset in (-1.0, 0.6, -0.2, 0.9, 0.1, -0.7, 0.3, -0.4)]


def test_a_step_is_the_difference_of_two_medians_and_the_first_is_its_total() -> None:
    found = steps({"a": spread(1.0), "b": spread(1.5)}, {"a": None, "b": "a"})
    assert found["a"].added == found["a"].total == pytest.approx(np.median(spread(1.0)))
    assert found["b"].total == pytest.approx(np.median(spread(1.5)))
    assert found["b"].added == pytest.approx(np.median(spread(1.5)) - np.median(spread(1.0)))
    assert all(step.rounds == ROUNDS and step.is_told_apart for step in found.values())


def test_a_layer_that_is_faster_has_a_negative_step() -> None:
    found = steps({"a": spread(1.5), "b": spread(1.0)}, {"b": "a"})
    assert found["b"].added < 0 and found["b"].is_told_apart
    assert found["b"].added_interval is not None and found["b"].added_interval[1] < 0


def test_equal_layers_are_not_told_apart() -> None:
    found = steps({"a": spread(1.0), "b": spread(1.0)[::-1]}, {"b": "a"})
    assert not found["b"].is_told_apart


def test_several_layers_may_be_above_one() -> None:
    found = steps({"a": spread(1.0), "b": spread(1.2), "c": spread(1.4)}, {"b": "a", "c": "a"})
    assert found["c"].added == pytest.approx(0.4, rel=0.05)


def test_a_slow_round_is_no_difference_between_its_layers() -> None:
    """Rounds drift by 20 %; each layer adds exactly 10 %, so the step's interval stays narrow."""
    drift = np.linspace(1.0, 1.2, ROUNDS)
    found = steps({"a": (1.0 + drift).tolist(), "b": (1.1 + drift).tolist()}, {"b": "a"})
    low, high = found["b"].added_interval or (0.0, 0.0)
    assert found["b"].added == pytest.approx(0.1) and high - low < 1e-9
    total = found["b"].total_interval or (0.0, 0.0)
    assert total[1] - total[0] > 0.05, "how long all of it takes is another matter"


@pytest.mark.parametrize("rounds", [6, pytest.param(12, marks=pytest.mark.matrix)])
def test_the_interval_of_a_step_has_nearly_its_nominal_coverage(rounds: int) -> None:
    """400 experiments with a known step of 0.05, noise in each launch, and a common drift of each round."""
    generator = np.random.default_rng(7)
    held = 0
    for number in range(400):
        drift = generator.normal(0, 0.01, rounds)
        a = 1.0 + drift + generator.normal(0, 0.01, rounds)
        b = 1.05 + drift + generator.normal(0, 0.01, rounds)
        low, high = steps({"a": a.tolist(), "b": b.tolist()}, {"b": "a"}, seed=number)["b"].added_interval or (1.0, 0.0)
        held += low <= 0.05 <= high
    assert 0.91 <= held / 400 <= 1.0


def test_below_six_rounds_there_is_no_interval_and_unfinished_rounds_are_left_out() -> None:
    few = steps({"a": [1.0, 1.1, 1.2, 9.0], "b": [2.0, 2.1, 2.2]}, {"b": "a"})
    assert few["b"].added_interval is None and not few["b"].is_told_apart
    assert few["a"].rounds == 3 and few["a"].total == pytest.approx(1.1), "the fourth round has no b"


def test_the_same_values_give_the_same_intervals() -> None:
    first, second = (steps({"a": spread(1.0), "b": spread(1.1)}, {"b": "a"}) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("values", "below"),
    [({"b": [1.0]}, {"b": "a"}), ({"a": []}, {}), ({"a": [float("nan")]}, {})],
)
def test_invalid_layers_are_rejected(values: dict[str, list[float]], below: dict[str, str | None]) -> None:
    with pytest.raises(ValueError):
        steps(values, below)
