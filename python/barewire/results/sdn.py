# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Summarises an experiment on switches: each policy's values with reference, bound and prediction, and what differs."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from barewire.results.derived import derived_samples
from barewire.results.run import Launch, Run
from barewire.stats.confidence import CONFIDENCE, launches_for_interval, with_interval_names
from barewire.stats.intervals import geometric_interval
from barewire.stats.paired import Outcome, Ratio, compare_ratios, paired_ratio

# Non-blocking networks: one switch; and all switches of the network under test, with wide links between them.
STAR, WIDE = "star", "wide"
REFERENCES = (STAR, WIDE)
RANDOM, NATURAL, JOB = "random rings", "natural ring", "job"
MEDIAN_LATENCY, P99_LATENCY = "median latency", "p99 latency"
# Of several jobs at once; each job's own quantity has its name.
MEAN_COMPLETION = "mean completion"
UNITS = {RANDOM: "MB/s", NATURAL: "MB/s", JOB: "s", MEAN_COMPLETION: "s", MEDIAN_LATENCY: "ms", P99_LATENCY: "ms"}
# The quantities of which the pages say who is best.
RANKED = (RANDOM, JOB, MEAN_COMPLETION, MEDIAN_LATENCY, P99_LATENCY)
_QUANTILES = {MEDIAN_LATENCY: 0.5, P99_LATENCY: 0.99}
# Why nothing is said of two policies that were tested.
NOT_TOLD_APART = "the tests do not tell them apart"
# The workload of short messages: its launches are judged by their exchanges' times, not by b_eff's value.
LATENCY_TEST = "latency"
# Length of the messages whose exchanges are latencies, as in b_eff.
SHORT_BYTES = 8
_RINGS = {"random": RANDOM, "natural": NATURAL}
_MBIT_PER_MBYTE = 8


class Place(NamedTuple):
    """Coordinates of values that are compared; `beside` if the other job ran concurrently."""

    quantity: str
    hosts: int
    policy: str
    beside: bool


@dataclass(frozen=True)
class Cell:
    """One quantity of one policy: a value for each block, in `unit`, and its comparisons.

    `mean` is the geometric mean, `interval` its interval of this `confidence` (None below 6 blocks). `of_star` and
    `of_wide` relate it to the references in the same block; `of_alone`, for a job beside another, to the same job
    alone under the same policy; `of_bound` to an upper limit for any routing; `of_stp` to the policy stp. All are
    above 1 where this value is better, even for times. `predicted` is the simulator's mean, `error` the mean of its
    relative errors, and `errors` all of them, launch by launch. `busy_share` is the maximum over the launches,
    `saturated` the number of saturated launches.
    """

    place: Place
    blocks: tuple[int, ...]
    values: tuple[float, ...]
    mean: float
    median: float
    interval: tuple[float, float] | None
    of_star: Ratio | None
    of_wide: Ratio | None
    of_alone: Ratio | None
    of_bound: Ratio | None
    of_stp: Ratio | None
    predicted: float | None
    error: float | None
    errors: tuple[float, ...]
    published: float | None
    busy_share: float
    saturated: int
    switches_cores: float
    controller_cores: float
    confidence: float = CONFIDENCE

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return unit_of(self.place.quantity)

    @property
    def lower_is_better(self) -> bool:
        """Whether it is a time."""
        return _lower_is_better(self.place.quantity)

    def to_json(self) -> dict[str, Any]:
        """Return one flat JSON object."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("place", "confidence")}
        return {**self.place._asdict(), "unit": self.unit, **with_interval_names(plain, self.confidence)}


@dataclass(frozen=True)
class Prediction:
    """Errors of the simulator where it was not calibrated: mean and largest size of a launch's relative error."""

    launches: int
    mean: float
    worst: float
    worst_place: Place


class Compared(NamedTuple):
    """The coordinates of two policies that are compared."""

    quantity: str
    hosts: int
    beside: bool
    first: str
    second: str


@dataclass(frozen=True)
class Ranking:
    """Which policy is best at one place: `best`, or None with the reason.

    `first` has the best mean, `equals` are those that the tests do not tell apart from it.
    """

    first: Place
    best: str | None
    equals: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Summary:
    """All cells, the simulator's errors on the network under test by quantity, and what differs.

    `comparisons` are of all pairs of policies with enough blocks in common: whether their ratio within a block is above
    1, so that the first is better, corrected over all pairs and numbers of hosts of a quantity.
    """

    cells: tuple[Cell, ...]
    predictions: Mapping[str, Prediction]
    comparisons: Mapping[Compared, Outcome]

    @property
    def quantities(self) -> list[str]:
        """The measured quantities, in order."""
        return list(dict.fromkeys(cell.place.quantity for cell in self.cells))

    def cell(self, quantity: str, hosts: int, policy: str, *, beside: bool = False) -> Cell | None:
        """Return that cell, if it was measured."""
        wanted = Place(quantity, hosts, policy, beside)
        return next((cell for cell in self.cells if cell.place == wanted), None)

    def ratio(self, quantity: str, hosts: int, better: str, worse: str, *, beside: bool = False) -> Ratio | None:
        """Return the ratio of one policy to another over their common blocks; above 1 where the first is better."""
        first, second = (self.cell(quantity, hosts, policy, beside=beside) for policy in (better, worse))
        return (
            None
            if first is None or second is None
            else _ratio(_by_block(first), _by_block(second), first.lower_is_better, first.confidence)
        )

    def verdict(self, quantity: str, hosts: int, better: str, worse: str, *, beside: bool = False) -> str | None:
        """Return whether one policy is better than another: "better", "worse", "no difference", or why not to say.

        None if they were not measured.
        """
        cells = [self.cell(quantity, hosts, policy, beside=beside) for policy in (better, worse)]
        if any(cell is None for cell in cells):
            return None
        if reason := _obstacle([cell for cell in cells if cell is not None]):
            return f"cannot say: {reason}"
        words = {"above": "better", "below": "worse", "undecided": f"cannot say: {NOT_TOLD_APART}"}
        outcome = self.comparisons.get(Compared(quantity, hosts, beside, better, worse))
        if outcome is None:
            outcome = self.comparisons[Compared(quantity, hosts, beside, worse, better)]
            words |= {"above": "worse", "below": "better"}
        return words.get(outcome, outcome)

    def of_pairs(self, quantity: str, pairs: Sequence[tuple[str, str]], *, beside: bool = False) -> "Summary":
        """Return the same with tests of these pairs of policies alone, corrected over them and all numbers of hosts."""
        ratios = {
            Compared(quantity, hosts, beside, one, other): ratio
            for hosts in dict.fromkeys(cell.place.hosts for cell in self.cells)
            for one, other in pairs
            if (ratio := self.ratio(quantity, hosts, one, other, beside=beside)) is not None
        }
        confidence = self.cells[0].confidence if self.cells else CONFIDENCE
        return replace(self, comparisons=_tested(ratios, confidence))

    def rankings(self) -> Iterator[Ranking]:
        """Say for each quantity and number of hosts which policy is best."""
        groups: defaultdict[tuple[str, int, bool], list[Cell]] = defaultdict(list)
        for cell in self.cells:
            if cell.place.quantity in RANKED and cell.place.policy not in REFERENCES:
                groups[cell.place.quantity, cell.place.hosts, cell.place.beside].append(cell)
        for (quantity, hosts, beside), cells in groups.items():
            pick = min if _lower_is_better(quantity) else max
            first = pick(cells, key=lambda cell: cell.mean)
            others = [cell.place.policy for cell in cells if cell is not first]
            reason = _obstacle(cells)
            equals = tuple(
                other
                for other in others
                if self.verdict(quantity, hosts, first.place.policy, other, beside=beside) != "better"
            )
            if reason is None and not others:
                reason = "no other strategy was measured"
            elif reason is None and equals:
                reason = f"the tests do not tell {first.place.policy} and {' and '.join(equals)} apart"
            best = first.place.policy if reason is None else None
            yield Ranking(first.place, best, equals, reason or "")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "predictions": {name: asdict(each) for name, each in self.predictions.items()},
            "rankings": [{**asdict(each), "first": each.first._asdict()} for each in self.rankings()],
        }


@dataclass(frozen=True)
class _Value:
    """One launch's value of one quantity."""

    block: int
    value: float
    bound: float | None
    predicted: float | None
    load: Mapping[str, float]


def summarised(run: Run, frame: pl.DataFrame) -> Summary:
    """Summarise a run of kind "sdn" from its samples; incomplete launches are left out."""
    values: defaultdict[Place, list[_Value]] = defaultdict(list)
    by_launch = _values(frame, {launch.index for launch in run.launches if _is_latency(launch)})
    for launch in run.launches:
        if launch.complete:
            for place, value in _launch_values(launch, by_launch.get(launch.index, {})):
                values[place].append(value)
    order = {policy: number for number, policy in enumerate((*REFERENCES, *run.parameters["policies"]))}
    places = sorted(
        values, key=lambda key: (_number(key.quantity), key.quantity, key.hosts, order[key.policy], key.beside)
    )
    published = run.parameters.get("published") or {}
    cells = tuple(_cell(place, values, published, run.confidence) for place in places)
    return Summary(cells, _predictions(cells), _comparisons(cells, run.confidence))


def _is_latency(launch: Launch) -> bool:
    """Whether a launch measured exchanges of short messages."""
    return bool(launch.complete and launch.details["start"].get("sdn", {}).get("test") == LATENCY_TEST)


def exchanges_ms(frame: pl.DataFrame) -> pl.DataFrame:
    """Return half the time of every exchange in random rings, in ms: columns `launch` and `value`."""
    of_rings = frame.filter(
        (pl.col("quantity").cast(pl.String) == "time")
        & (pl.col("phase").cast(pl.String) == "measure")
        & pl.col("variant").cast(pl.String).str.starts_with("random")
    )
    to_ms = pl.when(pl.col("unit").cast(pl.String) == "us").then(1e-3).otherwise(1e-6)
    return of_rings.select("launch", pl.col("value") / 2 * to_ms)


def _values(frame: pl.DataFrame, latency_launches: Collection[int]) -> dict[int, dict[str, float]]:
    """Return each launch's values by quantity; of several message sizes the longest counts."""
    values: defaultdict[int, dict[str, float]] = defaultdict(dict)
    of_latency = exchanges_ms(frame.filter(pl.col("message_bytes") == SHORT_BYTES))
    for (launch,), exchanges in of_latency.partition_by("launch", as_dict=True).items():
        # Launches of long messages have too few short ones for a 99th percentile.
        names = _QUANTILES if launch in latency_launches else (MEDIAN_LATENCY,)
        values[int(str(launch))] = {
            name: float(np.quantile(exchanges["value"].to_numpy(), _QUANTILES[name])) for name in names
        }
    rings, _ = derived_samples(frame.filter(~pl.col("launch").is_in(list(latency_launches))))
    for row in rings.sort("message_bytes").iter_rows(named=True):
        if row["quantity"] == "bandwidth":
            values[row["launch"]][_RINGS[row["variant"]]] = row["value"] / _MBIT_PER_MBYTE
    jobs = frame.filter((pl.col("test").cast(pl.String) == "shuffle") & (pl.col("quantity").cast(pl.String) != "fetch"))
    for row in jobs.iter_rows(named=True):
        values[row["launch"]][str(row["quantity"])] = row["value"]
    return values


def _launch_values(launch: Launch, values: Mapping[str, float]) -> Iterator[tuple[Place, _Value]]:
    facts = launch.details["start"]["sdn"]
    for quantity, value in values.items():
        place = Place(quantity, facts["hosts"], facts["policy"], bool(facts["beside"]))
        bound = launch.details.get("bound", {}).get(quantity)
        predicted = launch.details.get("predicted", {}).get(quantity)
        yield place, _Value(facts["block"], value, bound, predicted, facts["load"] or {})


def _cell(
    place: Place, values: Mapping[Place, Sequence[_Value]], published: Mapping[str, Any], confidence: float
) -> Cell:
    measured_values = values[place]
    lower_is_better = _lower_is_better(place.quantity)
    by_block = {each.block: each.value for each in measured_values}

    def against(other: Mapping[int, float]) -> Ratio | None:
        return _ratio(by_block, other, lower_is_better, confidence)

    def values_at(coordinates: Place) -> dict[int, float]:
        return {each.block: each.value for each in values.get(coordinates, ())}

    errors = tuple(each.predicted / each.value - 1 for each in measured_values if each.predicted is not None)
    predicted = [each.predicted for each in measured_values if each.predicted is not None]
    numbers = [each.value for each in measured_values]
    busy = [each.load["busy_share"] for each in measured_values if each.load]
    return Cell(
        place=place,
        blocks=tuple(by_block),
        values=tuple(numbers),
        mean=float(np.exp(np.mean(np.log(numbers)))),
        median=float(np.median(numbers)),
        interval=geometric_interval(numbers, confidence),
        of_star=None if place.policy == STAR else against(values_at(place._replace(policy=STAR))),
        of_wide=None if place.policy in REFERENCES else against(values_at(place._replace(policy=WIDE))),
        of_alone=against(values_at(place._replace(beside=False))) if place.beside else None,
        of_bound=against({each.block: each.bound for each in measured_values if each.bound is not None}),
        of_stp=None if place.policy in ("stp", *REFERENCES) else against(values_at(place._replace(policy="stp"))),
        predicted=float(np.mean(predicted)) if predicted else None,
        error=float(np.mean(errors)) if errors else None,
        errors=errors,
        published=published.get(place.policy, {}).get(str(place.hosts)) if place.quantity == RANDOM else None,
        busy_share=max(busy, default=0.0),
        saturated=sum(bool(each.load.get("saturated")) for each in measured_values),
        switches_cores=_mean_load(measured_values, "switches_cores"),
        controller_cores=_mean_load(measured_values, "controller_cores"),
        confidence=confidence,
    )


def _ratio(
    values_by_block: Mapping[int, float], base_by_block: Mapping[int, float], lower_is_better: bool, confidence: float
) -> Ratio | None:
    """Return the ratio over the common blocks; None if there are none."""
    common = [(values_by_block[block], base_by_block[block]) for block in values_by_block if block in base_by_block]
    if not common:
        return None
    values, bases = zip(*common, strict=True)
    pair = (bases, values) if lower_is_better else (values, bases)
    return paired_ratio(*pair, confidence=confidence)


def _by_block(cell: Cell) -> dict[int, float]:
    return dict(zip(cell.blocks, cell.values, strict=True))


def _mean_load(values: Sequence[_Value], name: str) -> float:
    loads = [value.load[name] for value in values if value.load]
    return float(np.mean(loads)) if loads else 0.0


def _predictions(cells: Sequence[Cell]) -> dict[str, Prediction]:
    """Exclude the references: the wide network's runs were the calibration, and one switch has other costs."""
    predictions = {}
    for quantity in dict.fromkeys(cell.place.quantity for cell in cells):
        errors = [
            (abs(error), cell.place)
            for cell in cells
            if cell.place.quantity == quantity and cell.place.policy not in REFERENCES
            for error in cell.errors
        ]
        if errors:
            worst, place = max(errors, key=lambda entry: entry[0])
            predictions[quantity] = Prediction(len(errors), float(np.mean([size for size, _ in errors])), worst, place)
    return predictions


def _comparisons(cells: Sequence[Cell], confidence: float) -> dict[Compared, Outcome]:
    """Compare all pairs of policies; the corrections are over all pairs of a quantity, alone or beside another job."""
    found: dict[Compared, Outcome] = {}
    groups: defaultdict[tuple[str, bool], defaultdict[int, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.place.policy not in REFERENCES:
            groups[cell.place.quantity, cell.place.beside][cell.place.hosts].append(cell)
    for (quantity, beside), by_hosts in groups.items():
        ratios: dict[Compared, Ratio] = {}
        for hosts, of_hosts in by_hosts.items():
            for first, second in combinations(of_hosts, 2):
                ratio = _ratio(_by_block(first), _by_block(second), first.lower_is_better, confidence)
                if ratio is not None:
                    ratios[Compared(quantity, hosts, beside, first.place.policy, second.place.policy)] = ratio
        found |= _tested(ratios, confidence)
    return found


def _tested(ratios: Mapping[Compared, Ratio], confidence: float) -> dict[Compared, Outcome]:
    """Test the ratios with blocks enough for an interval, corrected over all of them."""
    known = {where: ratio for where, ratio in ratios.items() if ratio.interval is not None}
    return dict(zip(known, compare_ratios(list(known.values()), confidence=confidence), strict=True))


def _obstacle(cells: Sequence[Cell]) -> str | None:
    """Why nothing can be said of these cells' differences."""
    common = set.intersection(*(set(cell.blocks) for cell in cells))
    needed = launches_for_interval(cells[0].confidence)
    if len(common) < needed:
        many = f"only {len(common)} block{'' if len(common) == 1 else 's'}"
        return f"{many}, and at least {needed} are needed"
    saturated = sum(cell.saturated for cell in cells)
    if saturated:
        launches = sum(len(cell.values) for cell in cells)
        return f"the machine was saturated in {saturated} of {launches} launches"
    return None


def _lower_is_better(quantity: str) -> bool:
    return unit_of(quantity) in ("s", "ms")


def unit_of(quantity: str) -> str:
    """Return the unit of a quantity; those of named jobs are times."""
    return UNITS.get(quantity, "s")


def _number(quantity: str) -> int:
    """The place of a quantity in the order of reports; named jobs come last."""
    return [*UNITS, quantity].index(quantity)
