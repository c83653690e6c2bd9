# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Find endpoint values that suit a machine: each against its default, interleaved; kept only if a second run agrees."""

import itertools
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path

from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import read_records
from barewire.measure.sites import Site
from barewire.measure.subjects import Subject
from barewire.results import series_from_samples
from barewire.results.quantities import TIME_UNITS
from barewire.stats import LAUNCHES_FOR_INTERVAL, Comparison, compare_over_sizes

Values = Mapping[str, int]
Cell = tuple[str, int]
Progress = Callable[[int, int, str], None]

_KIB, _MIB = 1 << 10, 1 << 20
# Per value: its default, as crates/endpoint has it, and what else is tried.
CANDIDATES: dict[str, tuple[int, ...]] = {
    "acknowledge_every": (16, 8, 24, 31),
    "ring_bytes": (2 * _MIB, _MIB, 4 * _MIB, 8 * _MIB),
    "window": (63, 32, 48),
    "acknowledge_delay_us": (50, 25, 100, 200),
    "slots": (256, 128, 512),
    "send_descriptors": (256, 128, 512),
}
_QUICK = 2
# What one value gains in one of these it may not lose in another.
CELLS: tuple[tuple[str, tuple[int, ...]], ...] = (("pingpong", (64, 16 * _KIB)), ("stream", (64, 64 * _KIB)))


@dataclass(frozen=True)
class TunePlan:
    """How much is measured: launches of each value, and how long each is."""

    seed: int
    quick: bool = False
    launches: int = LAUNCHES_FOR_INTERVAL + 2
    effort: Effort = field(default_factory=lambda: Effort(samples=2000, seconds=0.1, warmup=200, blocks=5))

    @property
    def names(self) -> tuple[str, ...]:
        """The values that are looked at."""
        return tuple(CANDIDATES)[: _QUICK if self.quick else None]


@dataclass(frozen=True)
class Trial:
    """One value against its default: time by time in each cell, so below 1 is better."""

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


@dataclass(frozen=True)
class Tuned:
    """What came of it: what each candidate did, the values that were chosen, and whether a second run agreed."""

    trials: tuple[Trial, ...]
    chosen: Values
    confirmation: Trial | None

    @property
    def values(self) -> Values:
        """What is worth writing down; nothing where the defaults are as good."""
        return self.chosen if self.confirmation is not None and self.confirmation.is_better else {}


def tune(site: Site, plan: TunePlan, progress: Progress = lambda done, total, doing: None) -> Tuned:
    """Measure every candidate beside its default, then all that were chosen together beside all defaults."""
    generator, numbers = random.Random(plan.seed), itertools.count()
    defaults = {name: values[0] for name, values in CANDIDATES.items()}
    variants = {name: [{name: value} for value in CANDIDATES[name][1:]] for name in plan.names}
    total = sum(len(tried) + 1 for tried in variants.values()) + 2
    done = 0
    trials: list[Trial] = []
    for name, tried in variants.items():
        progress(done * plan.launches, total * plan.launches, name)
        trials += _trials(site, plan, generator, numbers, defaults, tried)
        done += len(tried) + 1
    chosen = choose(trials)
    if not chosen:
        return Tuned(tuple(trials), {}, None)
    progress(done * plan.launches, total * plan.launches, "all together, once more")
    (confirmation,) = _trials(site, plan, generator, numbers, defaults, [chosen])
    return Tuned(tuple(trials), chosen, confirmation)


def choose(trials: Sequence[Trial]) -> dict[str, int]:
    """Of each value the best candidate, if any is better than the default; none may break a rule between values."""
    best: dict[str, Trial] = {}
    for trial in trials:
        (name,) = trial.values
        if trial.is_better and (name not in best or trial.score < best[name].score):
            best[name] = trial
    chosen = {name: trial.values[name] for name, trial in best.items()}
    window, every = (chosen.get(name, CANDIDATES[name][0]) for name in ("window", "acknowledge_every"))
    if every > window // 2:
        # The engine refuses this pair: the one of the two that gains more is kept.
        worse = max(("window", "acknowledge_every"), key=lambda name: best[name].score if name in best else 0.0)
        del chosen[worse]
    return chosen


def _trials(
    site: Site,
    plan: TunePlan,
    generator: random.Random,
    numbers: Iterator[int],
    defaults: Values,
    tried: Sequence[Values],
) -> list[Trial]:
    medians = [_Medians() for _ in range(len(tried) + 1)]
    variants = [defaults, *({**defaults, **values} for values in tried)]
    orders = [
        (variant, Order(0, test, Subject("endpoint"), sizes, seed=0, effort=plan.effort))
        for variant in range(len(variants))
        for test, sizes in CELLS
    ]
    with tempfile.TemporaryDirectory(prefix="barewire-tune-") as folder:
        for _ in range(plan.launches):
            generator.shuffle(orders)
            for variant, order in orders:
                number = next(numbers)
                tuned = tuple(variants[variant].items())
                one = replace(order, number=number, seed=generator.getrandbits(32), tuned=tuned)
                file = Path(folder) / f"{number}.jsonl"
                launch(site, one, file)
                medians[variant].add(one, file)
    return [Trial(values, _compare(medians[place + 1], medians[0])) for place, values in enumerate(tried)]


class _Medians:
    """Of one variant: the median of each launch, by cell, as a time: of a message, or of a byte."""

    def __init__(self) -> None:
        self.by_cell: defaultdict[Cell, list[float]] = defaultdict(list)

    def add(self, order: Order, file: Path) -> None:
        records = read_records(file, order.number, order.test, order.subject.name, order.pairs)
        for one in series_from_samples(records.samples):
            if one.median is not None:
                time = one.median if one.unit in TIME_UNITS else 1 / one.median
                self.by_cell[order.test, one.message_bytes].append(time)


def _compare(candidate: _Medians, default: _Medians) -> dict[Cell, Comparison]:
    cells = sorted(default.by_cell)
    pairs = [(candidate.by_cell[cell], default.by_cell[cell]) for cell in cells]
    return dict(zip(cells, compare_over_sizes(pairs, lower_is_better=True, margin=0.01), strict=True))
