# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The crossover of two methods' costs: exact where it is known, stable where costs are noisy."""

import numpy as np
import pytest

from barewire.stats.crossover import crossover

SIZES = (64, 256, 1024, 4096, 16384)


def test_two_straight_lines_cross_where_they_meet():
    # 100 + 0.05 n against 150 + 0.025 n: equal at 2000.
    first, second = [100 + 0.05 * n for n in SIZES], [150 + 0.025 * n for n in SIZES]
    assert crossover(SIZES, first, second) == pytest.approx(2000)
    assert crossover(SIZES, [f * 1000 for f in first], [s * 1000 for s in second]) == pytest.approx(2000)


def test_lines_that_do_not_meet_cross_at_an_end_of_the_sizes():
    assert crossover(SIZES, [1.0] * 5, [2.0] * 5) == 16384
    assert crossover(SIZES, [2.0] * 5, [1.0] * 5) == 64
    assert crossover(SIZES, [1.0] * 5, [1.0] * 5) == 64
    assert crossover((8,), [1.0], [2.0]) == 8


def test_one_disturbed_size_does_not_move_the_crossover():
    first, second = [100 + 0.05 * n for n in SIZES], [150 + 0.025 * n for n in SIZES]
    first[0] = 200.0
    assert crossover(SIZES, first, second) == pytest.approx(2000)


def test_noise_moves_the_crossover_no_further_than_it_moves_the_costs():
    sizes = tuple(range(256, 16384, 256))
    generator = np.random.default_rng(3)
    found = []
    for _ in range(50):
        first, second = ([a + b * n for n in sizes] * generator.normal(1, 0.01, len(sizes)) for a, b in
                         ((450, 0.05), (520, 0.04)))  # fmt: skip
        found.append(crossover(sizes, first, second))
    assert np.median(found) == pytest.approx(7000, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "first", "second"),
    [((), [], []), ((1, 2), [1.0], [1.0, 2.0]), ((2, 1), [1.0, 1.0], [1.0, 1.0]), ((1, 2), [0.0, 1.0], [1.0, 1.0])],
)
def test_invalid_costs_are_rejected(sizes, first, second):
    with pytest.raises(ValueError):
        crossover(sizes, first, second)
