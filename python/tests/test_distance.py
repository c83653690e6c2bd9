# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The distance of two cores: waiting for near ones, and saying that they were moved."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from barewire.errors import MachineCannot
from barewire.measure.distance import ATTEMPTS_MAX, Cores, CoreWatch, distance_ns, first_two
from barewire.measure.sites import Station, watch_of


def watch(distances: Sequence[float | None], patience_s: float = 0.0) -> tuple[CoreWatch, list[float]]:
    """Return a watch that sees these distances, the last one for ever, and what it has slept."""
    left, slept = list(distances), cast(list[float], [])

    def look(cores: Cores) -> float | None:
        assert cores == (0, 1)
        return left.pop(0) if len(left) > 1 else left[0]

    return CoreWatch((0, 1), patience_s, look, slept.append), slept


def nothing() -> None:
    """A launch."""


def test_cores_are_the_first_two_of_all_hosts() -> None:
    assert first_two([(3,), (3,), (1, 2)]) == (3, 1)
    assert first_two([(0, 1)]) == (0, 1)
    assert first_two([(0,), (0,)]) is None
    assert first_two([(), ()]) is None, "real hosts"


def test_a_launch_waits_until_the_cores_are_near_again() -> None:
    found, slept = watch([75, 80, 370, 365, 77, 76], patience_s=60)
    assert found.around(nothing) == [75, 80] and not slept
    assert found.warning() is None, "nothing has changed"
    assert found.around(nothing) == [77, 76] and len(slept) == 2
    said = found.warning()
    assert said is not None and said.endswith("can be: 1 s were spent waiting for near ones")


def test_a_launch_during_which_the_cores_are_moved_is_repeated() -> None:
    launched: list[int] = []
    found, slept = watch([75, 370, 365, 77, 380, 76, 74], patience_s=60)
    assert found.around(lambda: launched.append(1)) == [76, 74]
    assert (len(launched), found.repeated, len(slept)) == (3, 2, 1)
    said = found.warning()
    assert said is not None and said.endswith("; 2 launches were repeated") and "ns apart" not in said
    # Not for ever, and not where nobody waits.
    found, _ = watch([75, 370] * ATTEMPTS_MAX, patience_s=60)
    assert found.around(nothing) == [75, 370] and found.repeated == ATTEMPTS_MAX - 1
    found, _ = watch([75, 370])
    assert found.around(nothing) == [75, 370] and found.repeated == 0


def test_cores_that_stay_far_apart_are_waited_for_once_and_later_for_half_as_long() -> None:
    found, slept = watch([75, 370], patience_s=10)
    assert found.before() == 75
    assert found.before() == 370 and sum(slept) == 10
    assert found.before() == 370 and sum(slept) == 10, "moved for good"
    found.look = lambda cores: 75.0 if len(slept) == 20 else 370.0
    assert found.before() == 75 and sum(slept) == 10
    slept.append(0)
    assert found.before() == 370 and sum(slept) == 15


def test_a_change_is_said_with_both_distances() -> None:
    found, slept = watch([75, 76, 74, 370, 365, 360, 73])
    for _ in range(3):
        found.around(nothing)
    said = found.warning()
    assert said is not None and "74 ns apart, and 365 ns at 3 of 6" in said and not slept


def test_a_distance_that_cannot_be_measured_keeps_nothing_waiting() -> None:
    found, slept = watch([None, None, 75, None], patience_s=60)
    assert [found.around(nothing), found.around(nothing)] == [[None, None], [75, None]]
    assert not slept and found.seen_ns == [75] and found.warning() is None


def test_a_missing_program_is_no_error_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise MachineCannot(name)

    monkeypatch.setattr("barewire.measure.distance.find_program", missing)
    assert distance_ns((0, 1)) is None
    failing = tmp_path / "failing"
    failing.write_text('#!/bin/sh\necho \'{"record": "start"}\'\nexit 3\n')
    failing.chmod(0o755)
    monkeypatch.setattr("barewire.measure.distance.find_program", lambda name: str(failing))
    assert distance_ns((0, 1)) is None


def test_stations_of_this_machine_are_watched_and_others_are_not() -> None:
    own = sorted(os.sched_getaffinity(0))
    found = watch_of([Station("h1", "eth0", cpus=(3,)), Station("h2", "eth0", cpus=(1,))], 5)
    assert found is not None and found.cores == (3, 1) and found.patience_s == 5
    found = watch_of([Station("localhost", None)])
    assert (found is None) == (len(own) < 2) and (found is None or list(found.cores) == own[:2])
    assert watch_of([Station("node1", "eth0"), Station("node2", "eth0")]) is None


@pytest.mark.parametrize(("values", "expected"), [([900, 270, 280], 27.0), ([300_000, 10_000_000], None), ([], None)])
def test_only_what_the_cores_themselves_take_counts(
    values: list[int], expected: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = {"record": "samples", "phase": "measure", "operations": 10, "values": values}
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(record)}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("barewire.measure.distance.find_program", lambda name: str(program))
    assert distance_ns((0, 1)) == expected
