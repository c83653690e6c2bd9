# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `barewire tune` makes of its measurements."""

from barewire.measure.tune import CANDIDATES, Trial, Tuned, choose
from barewire.stats import compare_over_sizes

LAUNCHES = 8


def trial(name: str, value: int, *ratios: float) -> Trial:
    """A candidate whose launches take so much of the default's time in each cell, with a spread of half a percent."""
    spread = [1 + 0.005 * (number % 3 - 1) + number * 1e-6 for number in range(LAUNCHES)]
    pairs = [([ratio * one for one in spread], spread[::-1]) for ratio in ratios]
    compared = compare_over_sizes(pairs, lower_is_better=True, margin=0.01)
    return Trial({name: value}, {("stream", 64 << place): one for place, one in enumerate(compared)})


def test_only_what_is_better_outside_the_interval_and_nowhere_worse_is_chosen() -> None:
    assert choose([trial("slots", 512, 1.0, 1.0), trial("window", 32, 0.999, 1.001)]) == {}
    assert choose([trial("slots", 512, 0.9, 1.0)]) == {"slots": 512}
    assert choose([trial("slots", 512, 0.9, 1.05)]) == {}, "a gain that something else pays for"


def test_the_best_candidate_of_each_value_is_chosen() -> None:
    trials = [trial("slots", 128, 0.95, 1.0), trial("slots", 512, 0.9, 1.0), trial("ring_bytes", 1 << 20, 0.9, 0.9)]
    assert choose(trials) == {"slots": 512, "ring_bytes": 1 << 20}


def test_values_that_the_engine_refuses_together_are_not_chosen_together() -> None:
    both = [trial("window", 32, 0.9, 1.0), trial("acknowledge_every", 31, 0.8, 1.0)]
    assert choose(both) == {"acknowledge_every": 31}
    assert choose(both[:1]) == {"window": 32}, "with the default of the other: 16 is half of 32"


def test_what_a_second_run_does_not_confirm_is_not_written() -> None:
    again = trial("slots", 512, 1.0, 1.0)
    assert Tuned((), {"slots": 512}, again).values == {}
    assert Tuned((), {"slots": 512}, trial("slots", 512, 0.9, 1.0)).values == {"slots": 512}


def test_the_default_is_no_candidate_of_its_own() -> None:
    for name, (default, *others) in CANDIDATES.items():
        assert default not in others and others, name
