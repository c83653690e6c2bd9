# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which floor a subject has, division by it, and how far it moved."""

import pytest
from synthetic import run_of, series_of

from barewire.results.floors import Floors, floor_of, levels, moved


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
    run = run_of("a", [series_of([2.0, 3.0, 4.0]), series_of([1.0, 2.0], subject="floor")])
    floors = Floors(run, "floor")
    assert floors.normalised(run.series[0]) == [2.0, 1.5], "the last round has no floor"
    assert floors.normalised(run.series[1]) is None and floors.names == {"floor"}
    assert Floors(run, "none").normalised(run.series[0]) is None


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
    assert levels([[1.0, 2.0], [4.0, 8.0], [1000.0]]) == pytest.approx([2.0, 4.0])


def _floor(values, message_bytes):
    return series_of(values, subject="floor", message_bytes=message_bytes)
