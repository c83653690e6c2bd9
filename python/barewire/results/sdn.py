# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Summarises an experiment on switches: each policy's values with reference, bound and prediction."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from barewire.results.derived import derived_samples
from barewire.results.run import Launch, Run
from barewire.stats import mean_interval
from barewire.stats.paired import Ratio, paired_ratio

# Non-blocking networks: one switch; and all switches of the network under test, with wide links between them.
STAR, WIDE = "star", "wide"
REFERENCES = (STAR, WIDE)
RANDOM, NATURAL, JOB = "random rings", "natural ring", "job"
UNITS = {RANDOM: "MB/s", NATURAL: "MB/s", JOB: "s"}
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

    `of_star` and `of_wide` relate it to the references in the same block; `of_alone`, for a job beside another, to the
    same job alone under the same policy; `of_bound` to an upper limit for any routing; `of_stp` to the policy stp. All
    are above 1 where this value is better, even for times. `predicted` is the simulator's mean, and `error` its
    relative error. `busy_share` is the maximum over the launches, `saturated` the number of saturated launches.
    """

    place: Place
    blocks: tuple[int, ...]
    values: tuple[float, ...]
    mean: float
    median: float
    ci95: tuple[float, float] | None
    of_star: Ratio | None
    of_wide: Ratio | None
    of_alone: Ratio | None
    of_bound: Ratio | None
    of_stp: Ratio | None
    predicted: float | None
    error: float | None
    published: float | None
    busy_share: float
    saturated: int
    switches_cores: float
    controller_cores: float

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return UNITS[self.place.quantity]

    @property
    def lower_is_better(self) -> bool:
        """Whether it is a time."""
        return self.unit == "s"

    def to_json(self) -> dict[str, Any]:
        """Return one flat JSON object."""
        plain = asdict(self)
        return {**self.place._asdict(), "unit": self.unit, **{k: v for k, v in plain.items() if k != "place"}}


@dataclass(frozen=True)
class Prediction:
    """Errors of the simulator where it was not calibrated: mean and largest relative error over the cells."""

    cells: int
    mean: float
    worst: float
    worst_place: Place


@dataclass(frozen=True)
class Summary:
    """All cells, and the simulator's errors on the network under test, by quantity."""

    cells: tuple[Cell, ...]
    predictions: Mapping[str, Prediction]

    def cell(self, quantity: str, hosts: int, policy: str, *, beside: bool = False) -> Cell | None:
        """Return that cell, if it was measured."""
        wanted = Place(quantity, hosts, policy, beside)
        return next((cell for cell in self.cells if cell.place == wanted), None)

    def ratio(self, quantity: str, hosts: int, better: str, worse: str) -> Ratio | None:
        """Return the ratio of one policy to another over their common blocks; above 1 where the first is better."""
        first, second = self.cell(quantity, hosts, better), self.cell(quantity, hosts, worse)
        return (
            None
            if first is None or second is None
            else _ratio(_by_block(first), _by_block(second), first.lower_is_better)
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "predictions": {name: asdict(each) for name, each in self.predictions.items()},
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
    by_launch = _values(frame)
    for launch in run.launches:
        if launch.complete:
            for place, value in _launch_values(launch, by_launch.get(launch.index, {})):
                values[place].append(value)
    order = {policy: number for number, policy in enumerate((*REFERENCES, *run.parameters["policies"]))}
    places = sorted(values, key=lambda key: (list(UNITS).index(key.quantity), key.hosts, order[key.policy], key.beside))
    published = run.parameters.get("published") or {}
    cells = tuple(_cell(place, values, published) for place in places)
    return Summary(cells, _predictions(cells))


def _values(frame: pl.DataFrame) -> dict[int, dict[str, float]]:
    """Return each launch's values by quantity; of several message sizes the longest counts."""
    values: defaultdict[int, dict[str, float]] = defaultdict(dict)
    rings, _ = derived_samples(frame)
    for row in rings.sort("message_bytes").iter_rows(named=True):
        if row["quantity"] == "bandwidth":
            values[row["launch"]][_RINGS[row["variant"]]] = row["value"] / _MBIT_PER_MBYTE
    jobs = frame.filter((pl.col("test").cast(pl.String) == "shuffle") & (pl.col("quantity").cast(pl.String) == JOB))
    for row in jobs.iter_rows(named=True):
        values[row["launch"]][JOB] = row["value"]
    return values


def _launch_values(launch: Launch, values: Mapping[str, float]) -> Iterator[tuple[Place, _Value]]:
    facts = launch.details["start"]["sdn"]
    for quantity, value in values.items():
        place = Place(quantity, facts["hosts"], facts["policy"], bool(facts["beside"]))
        bound = launch.details.get("bound", {}).get(quantity)
        predicted = launch.details.get("predicted", {}).get(quantity)
        yield place, _Value(facts["block"], value, bound, predicted, facts["load"] or {})


def _cell(place: Place, values: Mapping[Place, Sequence[_Value]], published: Mapping[str, Any]) -> Cell:
    measured_values = values[place]
    lower_is_better = UNITS[place.quantity] == "s"
    by_block = {each.block: each.value for each in measured_values}

    def against(other: Mapping[int, float]) -> Ratio | None:
        return _ratio(by_block, other, lower_is_better)

    def values_at(coordinates: Place) -> dict[int, float]:
        return {each.block: each.value for each in values.get(coordinates, ())}

    predictions = [(each.predicted, each.value) for each in measured_values if each.predicted is not None]
    numbers = [each.value for each in measured_values]
    busy = [each.load["busy_share"] for each in measured_values if each.load]
    return Cell(
        place=place,
        blocks=tuple(by_block),
        values=tuple(numbers),
        mean=float(np.mean(numbers)),
        median=float(np.median(numbers)),
        ci95=mean_interval(numbers),
        of_star=None if place.policy == STAR else against(values_at(place._replace(policy=STAR))),
        of_wide=None if place.policy in REFERENCES else against(values_at(place._replace(policy=WIDE))),
        of_alone=against(values_at(place._replace(beside=False))) if place.beside else None,
        of_bound=against({each.block: each.bound for each in measured_values if each.bound is not None}),
        of_stp=None if place.policy in ("stp", *REFERENCES) else against(values_at(place._replace(policy="stp"))),
        predicted=float(np.mean([predicted for predicted, _ in predictions])) if predictions else None,
        error=float(np.mean([predicted / value - 1 for predicted, value in predictions])) if predictions else None,
        published=published.get(place.policy, {}).get(str(place.hosts)) if place.quantity == RANDOM else None,
        busy_share=max(busy, default=0.0),
        saturated=sum(bool(each.load.get("saturated")) for each in measured_values),
        switches_cores=_mean_load(measured_values, "switches_cores"),
        controller_cores=_mean_load(measured_values, "controller_cores"),
    )


def _ratio(
    values_by_block: Mapping[int, float], base_by_block: Mapping[int, float], lower_is_better: bool
) -> Ratio | None:
    """Return the ratio over the common blocks; None if there are none."""
    common = [(values_by_block[block], base_by_block[block]) for block in values_by_block if block in base_by_block]
    if not common:
        return None
    values, bases = zip(*common, strict=True)
    return paired_ratio(bases, values) if lower_is_better else paired_ratio(values, bases)


def _by_block(cell: Cell) -> dict[int, float]:
    return dict(zip(cell.blocks, cell.values, strict=True))


def _mean_load(values: Sequence[_Value], name: str) -> float:
    loads = [value.load[name] for value in values if value.load]
    return float(np.mean(loads)) if loads else 0.0


def _predictions(cells: Sequence[Cell]) -> dict[str, Prediction]:
    """Exclude the references: the wide network's runs were the calibration, and one switch has other costs."""
    predictions = {}
    for quantity in UNITS:
        errors = [
            (abs(cell.error), cell.place)
            for cell in cells
            if cell.place.quantity == quantity and cell.place.policy not in REFERENCES and cell.error is not None
        ]
        if errors:
            worst, place = max(errors, key=lambda entry: entry[0])
            predictions[quantity] = Prediction(len(errors), float(np.mean([size for size, _ in errors])), worst, place)
    return predictions
