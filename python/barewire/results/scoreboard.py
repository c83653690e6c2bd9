# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard: ratio of Barewire's time to the best competitor's for each row, worst row first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from barewire.models.naming import OWN_PROVIDER, read_mpi_subject
from barewire.results.quantities import is_detail, may_be_zero
from barewire.results.run import Place, Row, Series
from barewire.stats.best import geometric_mean, ratio_to_best
from barewire.stats.confidence import CONFIDENCE

SCHEMA = "barewire-scoreboard/1"
# Rows above this ratio count as slower; smaller differences are within the machine's variation.
SLOWER = 1.05
SHORT_BYTES = 8 * 1024
# With fewer launches their range is meaningless.
LAUNCHES_FOR_VERDICT = 3

Verdict = Literal["slower", "undecided", "not slower"]
Key = tuple[Place, Row]


@dataclass(frozen=True)
class ScoreRow:
    """One library over Barewire, one pattern and size; `best` is the fastest competitor of the same run.

    `ratio` is a ratio of times, or the inverse of a ratio of rates: above 1 is slower. `same_library` is the ratio to
    the fastest competitor of the row's own library, None if there is none. `ours` and `theirs` are medians in `unit`.
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
        """Whether the whole interval, none of it, or a part of it is above `SLOWER`."""
        if self.is_surely_above(SLOWER):
            return "slower"
        return "undecided" if max(self.ratio, self.interval[1]) > SLOWER else "not slower"

    def is_surely_above(self, bound: float) -> bool:
        """Return whether the whole interval is above a bound, with enough launches for a verdict."""
        return self.launches >= LAUNCHES_FOR_VERDICT and self.interval[0] > bound

    @property
    def pattern(self) -> str:
        """Test and variant."""
        return f"{self.test} {self.variant}".strip()

    def to_json(self) -> dict[str, Any]:
        """Return the row as one JSON object."""
        return {**asdict(self), "interval": list(self.interval), "verdict": self.verdict}


@dataclass(frozen=True)
class Missing:
    """A row without a ratio, and the reason; `is_ours` if the competitors have a value and Barewire has none."""

    testbed: str
    pattern: str
    message_bytes: int
    library: str
    reason: str
    is_ours: bool = False


@dataclass(frozen=True)
class Summary:
    """Rows of one testbed, for one library or for all: geometric means of ratios, and numbers of slower rows."""

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
    """All rows, worst first, and those without a ratio; testbeds in the order of their runs."""

    rows: tuple[ScoreRow, ...]
    missing: tuple[Missing, ...] = ()
    testbeds: tuple[str, ...] = ()
    confidence: float = CONFIDENCE

    def summaries(self) -> list[Summary]:
        """Return for each testbed with rows the summaries of its libraries, and of all if there are several."""
        summaries = []
        for testbed in self.testbeds:
            rows = [row for row in self.rows if row.testbed == testbed]
            libraries = sorted({row.library for row in rows})
            summaries += [_summary(testbed, name, [row for row in rows if row.library == name]) for name in libraries]
            if len(libraries) > 1:
                summaries.append(_summary(testbed, "", rows))
        return summaries

    def above(self, bound: float) -> tuple[ScoreRow, ...]:
        """Return the rows whose whole interval is above a bound."""
        return tuple(row for row in self.rows if row.is_surely_above(bound))

    def to_json(self) -> dict[str, Any]:
        """Return rows, summaries and missing rows as JSON."""
        return {
            "schema": SCHEMA,
            "confidence": self.confidence,
            "slower_above": SLOWER,
            "short_bytes": SHORT_BYTES,
            "summaries": [asdict(each) for each in self.summaries()],
            "rows": [row.to_json() for row in self.rows],
            "missing": [asdict(each) for each in self.missing],
        }


def scoreboard(
    runs: Iterable[tuple[str, Sequence[Series], Collection[str]]], *, confidence: float = CONFIDENCE
) -> Scoreboard:
    """Make a scoreboard from the series of runs, each with its testbed and its competitors' fabrics.

    Intervals have this confidence, a share of 1.
    """
    rows: list[ScoreRow] = []
    missing: list[Missing] = []
    testbeds = []
    for testbed, series, competitors in runs:
        testbeds.append(testbed)
        points = _points(series)
        with_ours = {library for at_point in points.values() for library in _libraries(at_point, {OWN_PROVIDER})}
        for (place, row), at_point in points.items():
            _compare(testbed, place, row, at_point, competitors, rows, missing, confidence)
            # A library that has no such pattern at all is no failure of ours.
            for library in sorted(
                (_libraries(at_point, competitors) & with_ours) - _libraries(at_point, {OWN_PROVIDER})
            ):
                pattern = f"{place.test} {row.variant}".strip()
                reason = "no value over barewire"
                missing.append(Missing(testbed, pattern, row.message_bytes, library, reason, is_ours=True))
    return Scoreboard(tuple(worst_first(rows)), tuple(missing), tuple(testbeds), confidence)


def _libraries(at_point: Mapping[str, Series], fabrics: Collection[str]) -> set[str]:
    """The libraries that have a value over one of these fabrics."""
    names = filter(None, map(read_mpi_subject, at_point))
    return {name.library for name in names if name.fabric in fabrics}


def worst_first(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Sort by descending ratio, then by name, so that the order is deterministic."""
    return sorted(rows, key=lambda row: (-row.ratio, row.testbed, row.pattern, row.message_bytes, row.library))


def _points(series: Sequence[Series]) -> dict[Key, dict[str, Series]]:
    """Return the series at each point, by subject."""
    points: defaultdict[Key, dict[str, Series]] = defaultdict(dict)
    for each in series:
        # Quantities that may be 0 have no ratio.
        is_compared = not is_detail(each.test, each.quantity) and not may_be_zero(each.quantity)
        if is_compared and each.launch_medians:
            points[each.place, each.row][each.subject] = each
    return dict(points)


def _compare(
    testbed: str,
    place: Place,
    row: Row,
    at_point: Mapping[str, Series],
    competitors: Collection[str],
    rows: list[ScoreRow],
    missing: list[Missing],
    confidence: float,
) -> None:
    names = {subject: read_mpi_subject(subject) for subject in at_point}
    libraries = {subject: name.library for subject, name in names.items() if name}
    competing = {
        subject: _times(at_point[subject]) for subject, name in names.items() if name and name.fabric in competitors
    }
    for subject, name in names.items():
        if name is None or name.fabric != OWN_PROVIDER:
            continue
        if not competing:
            pattern = f"{place.test} {row.variant}".strip()
            reason = f"no library over {' or '.join(sorted(competitors))} has a value"
            missing.append(Missing(testbed, pattern, row.message_bytes, name.library, reason))
            continue
        ours = at_point[subject]
        comparison = ratio_to_best(_times(ours), competing, confidence=confidence)
        same_library = {other: times for other, times in competing.items() if libraries[other] == name.library}
        median, best_median = ours.median, at_point[comparison.best].median
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
                ratio=comparison.ratio,
                interval=comparison.interval,
                is_range=comparison.is_range,
                same_library=ratio_to_best(_times(ours), same_library).ratio if same_library else None,
                ours=median,
                theirs=best_median,
                unit=ours.unit,
                best=comparison.best,
                launches=min(ours.launches, at_point[comparison.best].launches),
            )
        )


def _times(series: Series) -> list[float]:
    """Return launch medians as times; for a rate the time of one unit."""
    return [value if series.lower_is_better else 1 / value for value in series.launch_medians]


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
