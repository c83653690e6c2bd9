# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The floor by which runs of different times are normalised, how far it moved, and drift within a run.

The floor is the minimal loop that a run measures beside its subjects: its time changes with the machine only.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.errors import WrongUse
from barewire.models.naming import (
    FLOOR,
    SubjectName,
    baseline_of,
    floor_link,
    on_link_of,
    read_mpi_subject,
    read_subject,
)
from barewire.results.run import Place, Run, Series
from barewire.stats.comparison import Comparison, compare_over_sizes, holm
from barewire.stats.trend import Trend, trend

NO_FLOOR = "none"


@dataclass(frozen=True)
class Moved:
    """How far the floor of one table moved: `result` compares the levels of its launches, run A with run B."""

    place: Place
    subject: str
    result: Comparison

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {**self.place._asdict(), "subject": self.subject, **asdict(self.result)}


@dataclass(frozen=True)
class Drift:
    """A trend over the launches of one subject in one table of a run, over all its sizes; `p_holm` over the run."""

    run: str
    place: Place
    subject: str
    variant: str
    launches: int
    trend: Trend
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            "run": self.run,
            **self.place._asdict(),
            "subject": self.subject,
            "variant": self.variant,
            "launches": self.launches,
            **asdict(self.trend),
            "p_holm": self.p_holm,
        }


def floor_of(subject: str, floor: str) -> str | None:
    """Return the name of the subject's floor; None if it has none, or is one itself.

    `floor` is "floor", the minimal loop over the same link, which MPI libraries do not have; "none"; or another
    subject, for MPI libraries also a fabric.
    """
    if floor == NO_FLOOR:
        return None
    if floor != FLOOR:
        name = baseline_of(subject, floor)
    elif read_mpi_subject(subject) is None:
        name = on_link_of(str(SubjectName(FLOOR, floor_link(read_subject(subject).link))), subject)
    else:
        return None
    return None if name == subject else name


class Floors:
    """The floors of one run, by place and row; `names` are the subjects that are floors of others."""

    def __init__(self, run: Run, floor: str) -> None:
        """WrongUse if `floor` is a name other than the default, and the run has no such subject."""
        self._run, self._floor = run, floor
        self._series = {(series.subject, series.place, series.row): series for series in run.series}
        known = {series.subject for series in run.series}
        self.names = {name for subject in known if (name := floor_of(subject, floor))}
        if floor not in (FLOOR, NO_FLOOR) and not any(baseline_of(subject, floor) in known for subject in known):
            raise WrongUse(f"{run.id} has no subject {floor!r} to normalise by; it has {', '.join(sorted(known))}")

    def normalised(self, series: Series) -> list[float] | None:
        """Return each launch's value divided by the floor's of the same round; None without a floor.

        Launches that one of them lacks are left out: the last ones of an interrupted run, or those without a usable
        value. A run that does not know its rounds has none of its launches paired unless both have equally many.
        """
        name = floor_of(series.subject, self._floor)
        floor = None if name is None else self._series.get((name, series.place, series.row))
        if (
            floor is None
            or floor.unit != series.unit
            or not all(0 < value < math.inf for value in floor.launch_medians)
        ):
            return None
        of_series, of_floor = self._run.by_round(series), self._run.by_round(floor)
        if of_series is None or of_floor is None:
            if len(series.launch_medians) != len(floor.launch_medians):
                return None
            of_series, of_floor = (dict(enumerate(each.launch_medians)) for each in (series, floor))
        return [value / of_floor[number] for number, value in of_series.items() if number in of_floor] or None


def moved(a: Run, b: Run, floor: str, *, confidence: float, margin: float) -> list[Moved]:
    """Return how far the floors that both runs have moved from `b` to `a`, for each table."""
    names = Floors(a, floor).names
    groups = [_groups(series for series in run.series if series.subject in names) for run in (a, b)]
    found = []
    for (place, subject, variant), series in groups[0].items():
        in_b = {each.row: each for each in groups[1].get((place, subject, variant), ())}
        pairs = [(each, in_b[each.row]) for each in series if each.row in in_b]
        if not pairs:
            continue
        (result,) = compare_over_sizes(
            [_levels_of_both(pairs)],
            lower_is_better=series[0].lower_is_better,
            margin=margin,
            confidence=confidence,
            seed=a.seed,
        )
        found.append(Moved(place, subject, result))
    return found


def drifts(run: Run, *, confidence: float) -> list[Drift]:
    """Return the trends over the launches of a run that are beyond doubt, corrected over its tables and subjects."""
    found = []
    for (place, subject, variant), series in _groups(run.series).items():
        values = levels([each.by_launch for each in series])
        if (result := trend(values)) is not None:
            found.append(Drift(run.id, place, subject, variant, len(values), result, math.nan))
    corrected = holm([each.trend.p for each in found])
    return [
        Drift(each.run, each.place, each.subject, each.variant, each.launches, each.trend, p)
        for each, p in zip(found, corrected, strict=True)
        if p < 1 - confidence
    ]


def levels(sizes: Sequence[Mapping[int, float]]) -> list[float]:
    """Return the level of each launch over several sizes, each a median by launch: their geometric mean.

    Sizes that lack a launch are left out, or it would seem to have another level.
    """
    return _means(sizes, max(sizes, key=len))


def _levels_of_both(pairs: Sequence[tuple[Series, Series]]) -> tuple[list[float], list[float]]:
    """Return the levels of two runs over the same sizes: those with the most launches, which others may lack."""
    # An adaptive run measures some sizes in more launches than others; all must count the same ones.
    sizes = [(a.by_launch, b.by_launch) for a, b in pairs]
    longest = max(sizes, key=lambda sides: min(map(len, sides)))
    whole = [sides for sides in sizes if all(side.keys() >= of.keys() for side, of in zip(sides, longest, strict=True))]
    return _means([a for a, _ in whole], longest[0]), _means([b for _, b in whole], longest[1])


def _means(sizes: Sequence[Mapping[int, float]], launches: Collection[int]) -> list[float]:
    """Return the geometric mean of each of these launches over the sizes that have all of them."""
    numbers = sorted(launches)
    whole = [each for each in sizes if each.keys() >= set(numbers)]
    return [math.exp(sum(math.log(each[number]) for each in whole) / len(whole)) for number in numbers]


def _groups(series: Iterable[Series]) -> dict[tuple[Place, str, str], list[Series]]:
    """Return the sizes of each subject, test and variant that have a level: values above 0."""
    groups: dict[tuple[Place, str, str], list[Series]] = {}
    for each in series:
        if each.launch_medians and min(each.launch_medians) > 0:
            groups.setdefault((each.place, each.subject, each.variant), []).append(each)
    return groups
