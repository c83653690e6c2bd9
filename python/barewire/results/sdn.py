# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An experiment on switches, summarised: each policy's values beside the reference, the bound and the prediction."""

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

# Networks that cannot block: one switch; and all switches of the one under test, with wide links between them.
STAR, WIDE = "star", "wide"
REFERENCES = (STAR, WIDE)
RANDOM, NATURAL, JOB = "random rings", "natural ring", "job"
UNITS = {RANDOM: "MB/s", NATURAL: "MB/s", JOB: "s"}
_RINGS = {"random": RANDOM, "natural": NATURAL}
_MBIT_PER_MBYTE = 8


class Place(NamedTuple):
    """What values that are compared have in common; `beside` if the other job ran, too."""

    quantity: str
    hosts: int
    policy: str
    beside: bool


@dataclass(frozen=True)
class Cell:
    """One quantity of one policy: a value for each block, in `unit`, and what it could have been.

    `of_star` and `of_wide` are what was reached of the references in the same block, `of_alone`, of a job beside
    another, of the same job alone under the same policy; `of_bound` of what no routing can beat; `of_stp` of the
    policy stp. All are above 1
    where this is better, also of times. `predicted` is the simulator's mean, and `error` its predictions by what was
    measured, less 1. `busy_share` is the largest of its launches, `saturated` how many of them were too busy.
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
        """Of values."""
        return UNITS[self.place.quantity]

    @property
    def lower_is_better(self) -> bool:
        """Whether it is a time."""
        return self.unit == "s"

    def to_json(self) -> dict[str, Any]:
        """One flat JSON object."""
        plain = asdict(self)
        return {**self.place._asdict(), "unit": self.unit, **{k: v for k, v in plain.items() if k != "place"}}


@dataclass(frozen=True)
class Prediction:
    """How wrong the simulator was where it was not calibrated: mean and largest relative error over the cells."""

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
        """That cell, if it was measured."""
        wanted = Place(quantity, hosts, policy, beside)
        return next((cell for cell in self.cells if cell.place == wanted), None)

    def ratio(self, quantity: str, hosts: int, better: str, worse: str) -> Ratio | None:
        """One policy by another, in the blocks that have both; above 1 where the first is better."""
        one, other = self.cell(quantity, hosts, better), self.cell(quantity, hosts, worse)
        return None if one is None or other is None else _ratio(_by_block(one), _by_block(other), one.lower_is_better)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "predictions": {name: asdict(one) for name, one in self.predictions.items()},
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
    """Summarise a run of kind "sdn" from its samples; launches that broke off are left out."""
    values: defaultdict[Place, list[_Value]] = defaultdict(list)
    found = _values(frame)
    for launch in run.launches:
        if launch.complete:
            for place, value in _of_launch(launch, found.get(launch.index, {})):
                values[place].append(value)
    order = {policy: number for number, policy in enumerate((*REFERENCES, *run.parameters["policies"]))}
    places = sorted(values, key=lambda at: (list(UNITS).index(at.quantity), at.hosts, order[at.policy], at.beside))
    published = run.parameters.get("published") or {}
    cells = tuple(_cell(place, values, published) for place in places)
    return Summary(cells, _predictions(cells))


def _values(frame: pl.DataFrame) -> dict[int, dict[str, float]]:
    """Each launch's values by quantity; of several sizes of messages the longest counts."""
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    rings, _ = derived_samples(frame)
    for row in rings.sort("message_bytes").iter_rows(named=True):
        if row["quantity"] == "bandwidth":
            found[row["launch"]][_RINGS[row["variant"]]] = row["value"] / _MBIT_PER_MBYTE
    jobs = frame.filter((pl.col("test").cast(pl.String) == "shuffle") & (pl.col("quantity").cast(pl.String) == JOB))
    for row in jobs.iter_rows(named=True):
        found[row["launch"]][JOB] = row["value"]
    return found


def _of_launch(launch: Launch, values: Mapping[str, float]) -> Iterator[tuple[Place, _Value]]:
    facts = launch.details["start"]["sdn"]
    for quantity, value in values.items():
        place = Place(quantity, facts["hosts"], facts["policy"], bool(facts["beside"]))
        bound = launch.details.get("bound", {}).get(quantity)
        predicted = launch.details.get("predicted", {}).get(quantity)
        yield place, _Value(facts["block"], value, bound, predicted, facts["load"] or {})


def _cell(place: Place, values: Mapping[Place, Sequence[_Value]], published: Mapping[str, Any]) -> Cell:
    own = values[place]
    lower_is_better = UNITS[place.quantity] == "s"
    by_block = {one.block: one.value for one in own}

    def against(other: Mapping[int, float]) -> Ratio | None:
        return _ratio(by_block, other, lower_is_better)

    def measured(at: Place) -> dict[int, float]:
        return {one.block: one.value for one in values.get(at, ())}

    predictions = [(one.predicted, one.value) for one in own if one.predicted is not None]
    numbers = [one.value for one in own]
    busy = [one.load["busy_share"] for one in own if one.load]
    return Cell(
        place=place,
        blocks=tuple(by_block),
        values=tuple(numbers),
        mean=float(np.mean(numbers)),
        median=float(np.median(numbers)),
        ci95=mean_interval(numbers),
        of_star=None if place.policy == STAR else against(measured(place._replace(policy=STAR))),
        of_wide=None if place.policy in REFERENCES else against(measured(place._replace(policy=WIDE))),
        of_alone=against(measured(place._replace(beside=False))) if place.beside else None,
        of_bound=against({one.block: one.bound for one in own if one.bound is not None}),
        of_stp=None if place.policy in ("stp", *REFERENCES) else against(measured(place._replace(policy="stp"))),
        predicted=float(np.mean([predicted for predicted, _ in predictions])) if predictions else None,
        error=float(np.mean([predicted / value - 1 for predicted, value in predictions])) if predictions else None,
        published=published.get(place.policy, {}).get(str(place.hosts)) if place.quantity == RANDOM else None,
        busy_share=max(busy, default=0.0),
        saturated=sum(bool(one.load.get("saturated")) for one in own),
        switches_cores=_mean_load(own, "switches_cores"),
        controller_cores=_mean_load(own, "controller_cores"),
    )


def _ratio(own: Mapping[int, float], other: Mapping[int, float], lower_is_better: bool) -> Ratio | None:
    """Of the blocks that have both; None where there is none."""
    both = [(own[block], other[block]) for block in own if block in other]
    if not both:
        return None
    values, others = zip(*both, strict=True)
    return paired_ratio(others, values) if lower_is_better else paired_ratio(values, others)


def _by_block(cell: Cell) -> dict[int, float]:
    return dict(zip(cell.blocks, cell.values, strict=True))


def _mean_load(values: Sequence[_Value], name: str) -> float:
    known = [one.load[name] for one in values if one.load]
    return float(np.mean(known)) if known else 0.0


def _predictions(cells: Sequence[Cell]) -> dict[str, Prediction]:
    """The wide network's runs made the calibration, and one switch has other costs: both are no test of it."""
    found = {}
    for quantity in UNITS:
        errors = [
            (abs(cell.error), cell.place)
            for cell in cells
            if cell.place.quantity == quantity and cell.place.policy not in REFERENCES and cell.error is not None
        ]
        if errors:
            worst, place = max(errors, key=lambda one: one[0])
            found[quantity] = Prediction(len(errors), float(np.mean([size for size, _ in errors])), worst, place)
    return found
