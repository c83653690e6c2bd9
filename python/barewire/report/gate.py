# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The gate: which rows are slower than allowed beyond doubt, which are not, and which nobody can tell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from barewire.models.naming import baseline_of, is_floor
from barewire.report.versus import MaybePair, Settings, Versus, coordinates, is_usable
from barewire.report.words import bounds, number, percent, series_name
from barewire.results.quantities import is_detail
from barewire.results.run import Run, Series
from barewire.results.series import series_key
from barewire.stats.comparison import compare_over_sizes
from barewire.stats.confidence import launches_for_interval

State = Literal["slower", "kept", "undecided"]


@dataclass(frozen=True)
class GateRow:
    """One row of the gate. `slowdown` is the time of A divided by that of B, for rates the inverse: above 1 is slower.

    It and its `interval` are those of the values normalised by the floors where both runs have one. Both are None if
    there is nothing to compare, and the interval with too few launches; `reason` says why a row is undecided.
    """

    series: Series
    state: State
    slowdown: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    normalised: bool = False

    @property
    def label(self) -> str:
        """Test, subject and size."""
        return series_name(self.series)

    @property
    def numbers(self) -> str:
        """`1.31 [1.29, 1.33]`, or a dash."""
        return "–" if self.slowdown is None else f"{number(self.slowdown)} {bounds(self.interval)}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            **coordinates(self.series),
            "state": self.state,
            "slowdown": self.slowdown,
            "interval": self.interval,
            "normalised": self.normalised,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Gate:
    """The judgement about all rows: none may be slower by more than `limit`, a share."""

    limit: float
    confidence: float
    rows: tuple[GateRow, ...]

    @property
    def passed(self) -> bool:
        """Whether no row is slower than allowed beyond doubt."""
        return not self.of("slower")

    def of(self, state: State) -> list[GateRow]:
        """Return the rows in this state, the slowest first."""
        return sorted((row for row in self.rows if row.state == state), key=lambda row: -(row.slowdown or 0))

    @property
    def summary(self) -> str:
        """The counts in one sentence."""
        slower, kept, undecided = (len(self.of(state)) for state in ("slower", "kept", "undecided"))
        return (
            f"{slower} of {len(self.rows)} rows slower by more than {percent(self.limit)}, {kept} surely not, "
            f"{undecided} undecided, at {percent(self.confidence)} confidence"
        )

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {"limit": self.limit, "passed": self.passed, "rows": [row.to_json() for row in self.rows]}


def judge(
    comparisons: Sequence[Versus], limit: float, settings: Settings, *, seed: int, missing: Iterable[GateRow] = ()
) -> Gate:
    """Judge the rows; floors and parts of other quantities are left out, `missing` rows are added.

    The times of A are divided by 1 + `limit`; a row is slower if they are still longer than those of B beyond doubt, by
    the same two tests as verdicts, corrected over all rows of the gate: so with nothing slower than allowed the gate
    fails in at most 1 - confidence of all cases. A row is kept if the whole interval is below the limit.
    """
    judged = [versus for versus in comparisons if is_judged(versus.a, settings)]
    pairs = [_costs(versus, limit) for versus in judged]
    results = compare_over_sizes(
        pairs, lower_is_better=True, margin=settings.margin, confidence=settings.confidence, seed=seed
    )
    rows = []
    for versus, result in zip(judged, results, strict=True):
        interval = result.ratio_interval
        is_below = interval is not None and interval[1] < 1
        state: State = "slower" if result.differs and result.ratio > 1 else "kept" if is_below else "undecided"
        rows.append(
            GateRow(
                series=versus.a,
                state=state,
                slowdown=result.ratio * (1 + limit),
                interval=None if interval is None else (interval[0] * (1 + limit), interval[1] * (1 + limit)),
                reason="" if state != "undecided" else _doubt(min(result.launches_a, result.launches_b), settings),
                normalised=versus.normalised is not None,
            )
        )
    return Gate(limit, settings.confidence, (*rows, *missing))


def unpaired_rows(pairs: Iterable[MaybePair], baseline: str, settings: Settings) -> list[GateRow]:
    """Return the rows of one run that cannot be compared with `baseline`, each with the reason."""
    rows = []
    for series, against in pairs:
        if not is_judged(series, settings):
            continue
        if against is None:
            rows.append(GateRow(series, "undecided", reason=f"{baseline} was not measured there"))
        elif not (is_usable(series) and is_usable(against)):
            rows.append(GateRow(series, "undecided", reason=_unusable(series, against)))
    return rows


def missing_rows(new: Run, old: Run, compared: Iterable[Versus], settings: Settings) -> list[GateRow]:
    """Return the rows of `old` that could not be compared, each with the reason."""
    done = {series_key(versus.b) for versus in compared}
    in_new = {series_key(series): series for series in new.series}
    rows = []
    for series in old.series:
        key = series_key(series)
        if key in done or not is_judged(series, settings):
            continue
        reason = f"not measured in {new.id}" if key not in in_new else _unusable(series, in_new[key])
        rows.append(GateRow(series, "undecided", reason=reason))
    return rows


def _unusable(a: Series, b: Series) -> str:
    if not (a.launch_medians and b.launch_medians):
        return "no launch has a usable value"
    return "values at or below 0 have no ratio"


def is_judged(series: Series, settings: Settings) -> bool:
    """Whether the gate judges this series: not a floor, and not a part of another quantity."""
    is_reference = is_floor(series.subject) or baseline_of(series.subject, settings.floor) == series.subject
    return not is_reference and not is_detail(series.test, series.quantity)


def _costs(versus: Versus, limit: float) -> tuple[list[float], list[float]]:
    """Return both sides as times, or inverse rates, A's divided by what is allowed."""
    power = 1 if versus.a.lower_is_better else -1
    a, b = ([value**power for value in side] for side in versus.values)
    return [value / (1 + limit) for value in a], b


def _doubt(launches: int, settings: Settings) -> str:
    needed = launches_for_interval(settings.confidence)
    if launches < needed:
        return f"{launches} launch{'es are' if launches != 1 else ' is'} too few: {needed} give an interval"
    return "the interval contains the limit, or the difference may be by chance: measure more launches"
