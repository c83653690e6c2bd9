# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interleaved launches of one transport with several tunings, each compared with the first."""

import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path

from barewire.errors import MeasurementFailed
from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import read_records
from barewire.measure.sites import Site
from barewire.measure.subjects import Subject
from barewire.results.quantities import TIME_UNITS
from barewire.results.series import series_from_samples
from barewire.stats.comparison import Comparison, compare_over_sizes
from barewire.stats.confidence import CONFIDENCE

Values = Mapping[str, int]
Cell = tuple[str, int]
# Tests with their sizes.
Cells = tuple[tuple[str, tuple[int, ...]], ...]
# Smaller relative differences do not count.
_MARGIN = 0.01


@dataclass(frozen=True)
class Bench:
    """Where and how launches run: `transport` between the two sides of `site`."""

    site: Site
    transport: str
    cells: Cells
    effort: Effort
    launches: int
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class Trial:
    """Values compared with the defaults: ratio of times in each cell, so below 1 is better."""

    values: Values
    cells: Mapping[Cell, Comparison]

    @property
    def is_better(self) -> bool:
        """Whether at least one cell is better, outside the interval, and none is worse."""
        verdicts = [comparison.verdict for comparison in self.cells.values()]
        return "A faster" in verdicts and "B faster" not in verdicts

    @property
    def score(self) -> float:
        """Geometric mean of the ratios."""
        return exp(sum(log(comparison.ratio) for comparison in self.cells.values()) / len(self.cells))


@dataclass
class Launcher:
    """Draws the order of launches and numbers them across a run."""

    generator: random.Random
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def medians(self, bench: Bench, variants: Sequence[Values]) -> list[dict[Cell, list[float]]]:
        """Return each variant's medians by cell, one per launch in rounds' order: times per message or per byte."""
        medians: list[defaultdict[Cell, list[float]]] = [defaultdict(list) for _ in variants]
        orders = [
            (variant, Order(0, test, Subject(bench.transport), sizes, seed=0, effort=bench.effort))
            for variant in range(len(variants))
            for test, sizes in bench.cells
        ]
        with tempfile.TemporaryDirectory(prefix="barewire-tune-") as folder:
            for _ in range(bench.launches):
                self.generator.shuffle(orders)
                for variant, order in orders:
                    number = next(self.numbers)
                    tuned = tuple(variants[variant].items())
                    numbered = replace(order, number=number, seed=self.generator.getrandbits(32), tuned=tuned)
                    file = Path(folder) / f"{number}.jsonl"
                    launch(bench.site, numbered, file)
                    for cell, time in _times(numbered, file).items():
                        medians[variant][cell].append(time)
        return [dict(cells) for cells in medians]

    def trials(self, bench: Bench, defaults: Values, candidates: Sequence[Values]) -> list[Trial]:
        """Return a comparison of each candidate, with the other values at their defaults, with all defaults."""
        base, *tuned = self.medians(bench, [defaults, *({**defaults, **values} for values in candidates)])
        return [
            Trial(values, _compare(measured, base, bench.confidence))
            for values, measured in zip(candidates, tuned, strict=True)
        ]


def _times(order: Order, file: Path) -> dict[Cell, float]:
    records = read_records(file, order.number, order.test, order.subject.name, order.pairs)
    if records.corrupt_messages:
        raise MeasurementFailed(f"{order.label}: {records.corrupt_messages} messages arrived with wrong contents")
    return {
        (order.test, series.message_bytes): series.median if series.unit in TIME_UNITS else 1 / series.median
        for series in series_from_samples(records.samples)
        if series.median is not None
    }


def _compare(
    tuned: Mapping[Cell, list[float]], default: Mapping[Cell, list[float]], confidence: float
) -> dict[Cell, Comparison]:
    cells = sorted(default)
    pairs = [(tuned[cell], default[cell]) for cell in cells]
    compared = compare_over_sizes(pairs, lower_is_better=True, margin=_MARGIN, confidence=confidence)
    return dict(zip(cells, compared, strict=True))
