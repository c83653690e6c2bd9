# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which floor a subject has, division by it, and how far it moved."""

from dataclasses import replace

import polars as pl
import pytest
from synthetic import run_of, series_of

from barewire.results.budget import budgets_of
from barewire.results.floors import Floors, floor_of, levels, moved
from barewire.results.functions import times_of
from barewire.results.run import Launch
from barewire.results.schema import sample_frame
from barewire.results.series import series_from_samples


@pytest.mark.parametrize(
    ("subject", "floor", "expected"),
    [
        ("raw", "floor", "floor"),
        ("tcp/block", "floor", "floor"),
        ("llc2+udp", "floor", "floor"),
        ("endpoint+xdp", "floor", "floor+xdp"),
        ("floor", "floor", None),
        ("openmpi/barewire", "floor", None),
        ("openmpi/barewire", "tcp", "openmpi/tcp"),
        ("openmpi/tcp", "tcp", None),
        ("raw", "tcp", "tcp"),
        ("raw", "none", None),
        ("raw+mtu=9000", "floor", "floor+mtu=9000"),
        ("endpoint+xdp+mtu=1500", "floor", "floor+xdp+mtu=1500"),
        ("openmpi/barewire+mtu=9000", "tcp", "openmpi/tcp+mtu=9000"),
    ],
)
def test_the_floor_of_a_subject(subject, floor, expected):
    assert floor_of(subject, floor) == expected


def test_launches_are_divided_by_the_floors_of_the_same_round():
    run = run_of("a", [series_of([2.0, 3.0]), series_of([1.0, 2.0], subject="floor")])
    floors = Floors(run, "floor")
    assert floors.normalised(run.series[0]) == [2.0, 1.5]
    assert floors.normalised(run.series[1]) is None and floors.names == {"floor"}
    assert Floors(run, "none").normalised(run.series[0]) is None


def test_a_launch_without_a_value_does_not_shift_the_rounds_after_it():
    run = _with_rounds(_of_launches([2.0, 4.0, 8.0], [0, 4, 6]), _of_launches([1.0, 3.0, 2.0], [1, 3, 5], "floor"))
    assert Floors(run, "floor").normalised(run.series[0]) == [2.0, 2.0], "of rounds 0 and 2; 1 and 3 lack a value"
    killed = replace(run, launches=tuple(replace(launch, round=None) for launch in run.launches))
    assert Floors(killed, "floor").normalised(run.series[0]) == [2.0, 4 / 3, 4.0]
    fewer = replace(killed, series=(_of_launches([2.0, 4.0], [0, 4]), run.series[1]))
    assert Floors(fewer, "floor").normalised(fewer.series[0]) is None, "nobody knows which launches belong together"


def test_series_know_the_launches_of_their_medians():
    rows = [{"launch": launch, "block": 0, "value": value} for launch, value in ((3, 1.0), (5, float("nan")), (8, 3.0))]
    place = {"test": "pingpong", "subject": "raw", "message_bytes": 64, "phase": "measure", "unit": "us", "lost": 0}
    (series,) = series_from_samples(sample_frame(pl.DataFrame([place | row for row in rows])))
    assert (series.launch_numbers, series.by_launch) == ((3, 8), {3: 1.0, 8: 3.0})


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([], {}),
        ([1, 0], {}),
        ([1, float("nan")], {}),
        ([1, 1], {"unit": "ms"}),
        ([1, 1], {"message_bytes": 1}),
    ],
)
def test_a_floor_that_cannot_divide_is_none(values, more):
    run = run_of("a", [series_of([2.0, 3.0]), series_of(values, subject="floor", **more)])
    assert Floors(run, "floor").normalised(run.series[0]) is None


def test_sizes_that_lack_launches_do_not_move_the_floor():
    """An adaptive run measures some sizes less often; a level must be of the same sizes in both runs."""
    often, seldom = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [50.0, 51.0]
    a = run_of("a", [series_of([1.0]), _floor(often * 2, 8), _floor(seldom, 4096)])
    b = run_of("b", [_floor(often, 8), _floor([50.0, 51.0, 49.0, 50.0, 50.0, 50.0], 4096)])
    (found,) = moved(a, b, "floor", confidence=0.95, margin=0.02)
    assert found.result.ratio == pytest.approx(1, abs=0.01)
    assert (found.result.launches_a, found.result.launches_b) == (12, 6)


def test_a_level_is_the_geometric_mean_over_the_sizes_that_have_every_launch():
    assert levels([{0: 1.0, 5: 2.0}, {0: 4.0, 5: 8.0}, {5: 1000.0}]) == pytest.approx([2.0, 4.0])
    assert levels([{0: 1.0, 5: 2.0}, {0: 9.0, 7: 9.0}]) == pytest.approx([1.0, 2.0]), "other launches, other levels"


def test_models_and_budgets_take_the_launches_that_all_have():
    sizes = [_of_launches([1.0, 2.0, 3.0, 4.0], [0, 2, 4, 6]), _of_launches([30.0, 40.0, 50.0], [2, 4, 6], size=4096)]
    assert times_of(sizes).by_size() == [[2.0, 3.0, 4.0], [30.0, 40.0, 50.0]]
    refined = [_of_launches([1.0, 2.0], [0, 2]), _of_launches([30.0, 40.0], [4, 6], size=4096)]
    assert times_of(refined).by_size() == [[1.0, 2.0], [30.0, 40.0]]

    layers = _of_launches([2.0, 4.0, 8.0], [0, 4, 6], "endpoint"), _of_launches([1.0, 3.0, 5.0], [1, 3, 5])
    run = replace(_with_rounds(*layers), parameters={"kind": "budget", "rate_bit_s": None, "mtu": 1500})
    (budget,) = budgets_of(run)
    assert {layer.subject: (layer.step.total, layer.step.rounds) for layer in budget.path} == {
        "raw": (3.0, 2),
        "endpoint": (3.0, 2),
    }


def _of_launches(values, numbers, subject="raw", size=64):
    return replace(series_of(values, subject=subject, message_bytes=size), launch_numbers=tuple(numbers))


def _with_rounds(*series):
    """A run of four rounds of two launches each."""
    launches = tuple(Launch(index, "any", "pingpong", round=index // 2) for index in range(8))
    return replace(run_of("a", series), launches=launches)


def _floor(values, message_bytes):
    return series_of(values, subject="floor", message_bytes=message_bytes)
