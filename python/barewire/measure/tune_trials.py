# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Launches of one transport with several values of its tuning, interleaved: each compared with the first."""

import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path

from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import read_records
from barewire.measure.sites import Site
from barewire.measure.subjects import Subject
from barewire.results import series_from_samples
from barewire.results.quantities import TIME_UNITS
from barewire.stats import Comparison, compare_over_sizes

Values = Mapping[str, int]
Cell = tuple[str, int]
# Tests, each with its sizes.
Cells = tuple[tuple[str, tuple[int, ...]], ...]
# Below this a difference is none.
_MARGIN = 0.01


@dataclass(frozen=True)
class Bench:
    """Where launches run, and how: `transport` between the two sides of `site`."""

    site: Site
    transport: str
    cells: Cells
    effort: Effort
    launches: int


@dataclass(frozen=True)
class Trial:
    """Values against the defaults: time by time in each cell, so below 1 is better."""

    values: Values
    cells: Mapping[Cell, Comparison]

    @property
    def is_better(self) -> bool:
        """Better in one cell at least, outside the interval, and worse in none."""
        verdicts = [one.verdict for one in self.cells.values()]
        return "A faster" in verdicts and "B faster" not in verdicts

    @property
    def score(self) -> float:
        """Geometric mean of the ratios."""
        return exp(sum(log(one.ratio) for one in self.cells.values()) / len(self.cells))


@dataclass
class Launcher:
    """Draws the order and numbers the launches of a whole run."""

    generator: random.Random
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def medians(self, bench: Bench, variants: Sequence[Values]) -> list[dict[Cell, list[float]]]:
        """Of each variant, by cell: each launch's median as a time, of a message or of a byte, round by round."""
        found: list[defaultdict[Cell, list[float]]] = [defaultdict(list) for _ in variants]
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
                    one = replace(order, number=number, seed=self.generator.getrandbits(32), tuned=tuned)
                    file = Path(folder) / f"{number}.jsonl"
                    launch(bench.site, one, file)
                    for cell, time in _times(one, file).items():
                        found[variant][cell].append(time)
        return [dict(one) for one in found]

    def trials(self, bench: Bench, defaults: Values, tried: Sequence[Values]) -> list[Trial]:
        """Each of the values tried, the others at their defaults, against all defaults."""
        base, *others = self.medians(bench, [defaults, *({**defaults, **values} for values in tried)])
        return [Trial(values, _compare(one, base)) for values, one in zip(tried, others, strict=True)]


def _times(order: Order, file: Path) -> dict[Cell, float]:
    records = read_records(file, order.number, order.test, order.subject.name, order.pairs)
    return {
        (order.test, one.message_bytes): one.median if one.unit in TIME_UNITS else 1 / one.median
        for one in series_from_samples(records.samples)
        if one.median is not None
    }


def _compare(tried: Mapping[Cell, list[float]], default: Mapping[Cell, list[float]]) -> dict[Cell, Comparison]:
    cells = sorted(default)
    pairs = [(tried[cell], default[cell]) for cell in cells]
    return dict(zip(cells, compare_over_sizes(pairs, lower_is_better=True, margin=_MARGIN), strict=True))
