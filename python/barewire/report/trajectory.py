# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The trajectory of each row over many runs, and its steps: from which run on it is faster or slower."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barewire.errors import WrongUse
from barewire.models.naming import is_floor
from barewire.report.versus import Settings, coordinates, is_usable, refuse_other_environment, refuse_other_unit
from barewire.results.floors import Floors
from barewire.results.quantities import is_detail
from barewire.results.run import Run, Series
from barewire.results.series import Key, series_key
from barewire.stats.changes import Change, find_changes, has_noise

# A single launch has no spread.
_LAUNCHES_MIN = 2
# The series of one test, subject and size, with the numbers of their runs.
_Row = list[tuple[int, Series]]


@dataclass(frozen=True)
class Point:
    """One run's value of a row: the median in the unit of the row, and the level in which steps are searched.

    The level is the median of the launches' values, divided by those of the floor if the track is normalised.
    """

    run: int
    launches: int
    median: float
    level: float


@dataclass(frozen=True)
class Track:
    """One row over the runs that have it; the `at` of a change is a run's number, from 0.

    `is_undecided`: its runs differ by more than the margin, but too few launches tell, all of which are equal in a run.
    """

    series: Series
    normalised: bool
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    is_undecided: bool = False

    def is_slower(self, change: Change) -> bool:
        """Whether a change is for the worse."""
        return (change.ratio > 1) == self.series.lower_is_better


@dataclass(frozen=True)
class Trajectory:
    """The runs in the given order, and every row that two or more of them have."""

    runs: tuple[Run, ...]
    settings: Settings
    tracks: tuple[Track, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document of `--json`."""
        return {
            "schema": "barewire-trajectory/1",
            "runs": [{"id": run.id, "created": run.created, "complete": run.complete} for run in self.runs],
            "margin": self.settings.margin,
            "confidence": self.settings.confidence,
            "floor": self.settings.floor,
            "tracks": [self._track(track) for track in self.tracks],
        }

    def _track(self, track: Track) -> dict[str, Any]:
        return {
            **coordinates(track.series),
            "normalised": track.normalised,
            "undecided": track.is_undecided,
            "points": [
                {
                    "run": self.runs[point.run].id,
                    "launches": point.launches,
                    "median": point.median,
                    "ratio": point.level / track.points[0].level,
                }
                for point in track.points
            ],
            "changes": [
                {
                    "run": self.runs[change.at].id,
                    "is": "slower" if track.is_slower(change) else "faster",
                    "ratio": change.ratio,
                    "interval": change.interval,
                    "p": change.p,
                }
                for change in track.changes
            ],
        }


def trajectory(runs: Sequence[Run], settings: Settings, *, across_environments: bool = False) -> Trajectory:
    """Follow every row over the runs, oldest first; a row is normalised by the floor if all runs that have it do.

    Parts of other quantities are left out. p values are corrected over all rows. WrongUse for fewer than two runs, one
    that is given twice, different environments or settings (unless allowed), or runs that share no row.
    """
    if len(runs) < 2:
        raise WrongUse("a trajectory needs two or more runs, the oldest first")
    if len({run.id for run in runs}) < len(runs):
        raise WrongUse("a run is given twice: each must be another measurement")
    for run in () if across_environments else runs[1:]:
        refuse_other_environment(runs[0], run)
    floors = [Floors(run, settings.floor) for run in runs]
    rows: dict[Key, _Row] = {}
    for number, run in enumerate(runs):
        for series in run.series:
            if is_detail(series.test, series.quantity) or not is_usable(series):
                continue
            if len(series.launch_medians) >= _LAUNCHES_MIN:
                rows.setdefault(series_key(series), []).append((number, series))
    shared = [row for row in rows.values() if len(row) > 1]
    if not shared:
        raise WrongUse("the runs have no test, subject and message size in common with two launches or more of each")
    followed = [_levels(row, floors) for row in shared]
    changes = find_changes([levels for levels, _ in followed], confidence=settings.confidence, margin=settings.margin)
    tracks = [
        _track(row, levels, normalised, found, settings.margin)
        for row, (levels, normalised), found in zip(shared, followed, changes, strict=True)
    ]
    return Trajectory(tuple(runs), settings, tuple(tracks))


def _track(
    row: _Row, levels: Mapping[int, Sequence[float]], normalised: bool, changes: Sequence[Change], margin: float
) -> Track:
    points = _points(row, levels)
    found = [point.level for point in points]
    is_undecided = not changes and max(found) > min(found) * (1 + margin) and not has_noise(levels)
    return Track(row[0][1], normalised, points, tuple(changes), is_undecided)


def _levels(row: _Row, floors: Sequence[Floors]) -> tuple[dict[int, list[float]], bool]:
    """Return the values of a row's launches by run, and whether they are normalised."""
    first = row[0][1]
    for _, series in row[1:]:
        refuse_other_unit(first, series)
    by_floors = {number: floors[number].normalised(series) or [] for number, series in row}
    if not is_floor(first.subject) and min(map(len, by_floors.values())) >= _LAUNCHES_MIN:
        return by_floors, True
    return {number: list(series.launch_medians) for number, series in row}, False


def _points(row: _Row, levels: Mapping[int, Sequence[float]]) -> tuple[Point, ...]:
    return tuple(
        Point(number, len(levels[number]), float(np.median(series.launch_medians)), float(np.median(levels[number])))
        for number, series in row
    )
