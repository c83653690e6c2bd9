# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard: Barewire's time by the best other's for each pattern, size, library and testbed, worst row first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from barewire.models.naming import OWN_PROVIDER, read_mpi_subject
from barewire.results.quantities import is_detail, may_be_zero
from barewire.results.run import Place, Row, Series
from barewire.stats.best import geometric_mean, ratio_to_best

SCHEMA = "barewire-scoreboard/1"
# A row above it is slower than it may be; so much is within what a machine varies.
SLOWER = 1.05
SHORT_BYTES = 8 * 1024
# With fewer launches their range says nothing.
LAUNCHES_FOR_VERDICT = 3

Verdict = Literal["slower", "undecided", "not slower"]
Key = tuple[Place, Row]


@dataclass(frozen=True)
class ScoreRow:
    """One library over Barewire, one pattern and size; `best` is the fastest other subject of the same run.

    `ratio` is a ratio of times, of rates the inverse: above 1 is slower. `same_library` is that by the fastest other
    subject of the row's own library, None if there is none. `ours` and `theirs` are medians in `unit`.
    """

    testbed: str
    test: str
    variant: str
    quantity: str
    ranks: int
    pairs: int
    message_bytes: int
    parameter: str
    parameter_value: float | None
    library: str
    ratio: float
    interval: tuple[float, float]
    is_range: bool
    same_library: float | None
    ours: float
    theirs: float
    unit: str
    best: str
    launches: int

    @property
    def verdict(self) -> Verdict:
        """Whether it is slower than `SLOWER` with its whole interval, with none of it, or with a part."""
        if self.is_surely_above(SLOWER):
            return "slower"
        return "undecided" if max(self.ratio, self.interval[1]) > SLOWER else "not slower"

    def is_surely_above(self, bound: float) -> bool:
        """Whether the whole interval lies above a bound, and there are launches enough to say so."""
        return self.launches >= LAUNCHES_FOR_VERDICT and self.interval[0] > bound

    @property
    def pattern(self) -> str:
        """Test and variant."""
        return f"{self.test} {self.variant}".strip()

    def to_json(self) -> dict[str, Any]:
        """The row as one JSON object."""
        return {**asdict(self), "interval": list(self.interval), "verdict": self.verdict}


@dataclass(frozen=True)
class Missing:
    """A row that has no ratio, and why."""

    testbed: str
    pattern: str
    message_bytes: int
    library: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """Rows of one testbed, of one library or of all: geometric means of ratios, and how many rows are slower."""

    testbed: str
    library: str
    rows: int
    short: float | None
    all_sizes: float
    same_library: float | None
    above: int
    surely_above: int
    worst: float


@dataclass(frozen=True)
class Scoreboard:
    """All rows, worst first, and those that have no ratio; the testbeds in the order of their runs."""

    rows: tuple[ScoreRow, ...]
    missing: tuple[Missing, ...] = ()
    testbeds: tuple[str, ...] = ()

    def summaries(self) -> list[Summary]:
        """For each testbed that has rows: each library, then all of them where there are several."""
        found = []
        for testbed in self.testbeds:
            rows = [row for row in self.rows if row.testbed == testbed]
            libraries = sorted({row.library for row in rows})
            found += [_summary(testbed, name, [row for row in rows if row.library == name]) for name in libraries]
            if len(libraries) > 1:
                found.append(_summary(testbed, "", rows))
        return found

    def above(self, bound: float) -> tuple[ScoreRow, ...]:
        """Rows whose whole interval lies above a bound."""
        return tuple(row for row in self.rows if row.is_surely_above(bound))

    def to_json(self) -> dict[str, Any]:
        """Rows, summaries and what is missing, as JSON."""
        return {
            "schema": SCHEMA,
            "slower_above": SLOWER,
            "short_bytes": SHORT_BYTES,
            "summaries": [asdict(one) for one in self.summaries()],
            "rows": [row.to_json() for row in self.rows],
            "missing": [asdict(one) for one in self.missing],
        }


def scoreboard(runs: Iterable[tuple[str, Sequence[Series], Collection[str]]]) -> Scoreboard:
    """Make a scoreboard of the series of runs, each by its testbed and with its competitors' fabrics."""
    rows: list[ScoreRow] = []
    missing: list[Missing] = []
    testbeds = []
    for testbed, series, competitors in runs:
        testbeds.append(testbed)
        for (place, row), at_point in _points(series).items():
            _compare(testbed, place, row, at_point, competitors, rows, missing)
    return Scoreboard(tuple(worst_first(rows)), tuple(missing), tuple(testbeds))


def worst_first(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Sort by the ratio, the largest first; equal ones by name, so that the order is always the same."""
    return sorted(rows, key=lambda row: (-row.ratio, row.testbed, row.pattern, row.message_bytes, row.library))


def _points(series: Sequence[Series]) -> dict[Key, dict[str, Series]]:
    """What was measured of each pattern at each size, by subject."""
    points: defaultdict[Key, dict[str, Series]] = defaultdict(dict)
    for one in series:
        # What may be 0 has no ratio.
        is_compared = not is_detail(one.test, one.quantity) and not may_be_zero(one.quantity)
        if is_compared and one.launch_medians:
            points[one.place, one.row][one.subject] = one
    return dict(points)


def _compare(
    testbed: str,
    place: Place,
    row: Row,
    at_point: Mapping[str, Series],
    competitors: Collection[str],
    rows: list[ScoreRow],
    missing: list[Missing],
) -> None:
    names = {subject: read_mpi_subject(subject) for subject in at_point}
    libraries = {subject: name.library for subject, name in names.items() if name}
    others = {
        subject: _times(at_point[subject]) for subject, name in names.items() if name and name.fabric in competitors
    }
    for subject, name in names.items():
        if name is None or name.fabric != OWN_PROVIDER:
            continue
        if not others:
            pattern = f"{place.test} {row.variant}".strip()
            why = f"no library over {' or '.join(sorted(competitors))} has a value"
            missing.append(Missing(testbed, pattern, row.message_bytes, name.library, why))
            continue
        ours = at_point[subject]
        found = ratio_to_best(_times(ours), others)
        own = {one: times for one, times in others.items() if libraries[one] == name.library}
        median, best_median = ours.median, at_point[found.best].median
        assert median is not None and best_median is not None
        rows.append(
            ScoreRow(
                testbed=testbed,
                test=place.test,
                variant=row.variant,
                quantity=place.quantity,
                ranks=place.ranks,
                pairs=place.pairs,
                message_bytes=row.message_bytes,
                parameter=place.parameter,
                parameter_value=row.value,
                library=name.library,
                ratio=found.ratio,
                interval=found.interval,
                is_range=found.is_range,
                same_library=ratio_to_best(_times(ours), own).ratio if own else None,
                ours=median,
                theirs=best_median,
                unit=ours.unit,
                best=found.best,
                launches=ours.launches,
            )
        )


def _times(one: Series) -> list[float]:
    """Launch medians as times, whatever they are: of a rate the time of one unit."""
    return [value if one.lower_is_better else 1 / value for value in one.launch_medians]


def _summary(testbed: str, library: str, rows: Sequence[ScoreRow]) -> Summary:
    short = [row.ratio for row in rows if row.message_bytes <= SHORT_BYTES]
    same = [row.same_library for row in rows if row.same_library is not None]
    return Summary(
        testbed=testbed,
        library=library,
        rows=len(rows),
        short=geometric_mean(short) if short else None,
        all_sizes=geometric_mean([row.ratio for row in rows]),
        same_library=geometric_mean(same) if same else None,
        above=sum(row.ratio > SLOWER for row in rows),
        surely_above=sum(row.verdict == "slower" for row in rows),
        worst=max(row.ratio for row in rows),
    )
