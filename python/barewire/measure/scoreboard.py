# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard's runs: each library over each fabric on every testbed, with many patterns per launch of mpirun."""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.measure.environment import describe_environment
from barewire.measure.mpi import MpiSite, left_out, raise_failure
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.mpi_subjects import MpiSubject
from barewire.measure.patterns import Pattern, Testbed
from barewire.measure.records import LaunchRecords
from barewire.measure.session import Progress, StoppingRule, new_run, run_campaign
from barewire.measure.sites import watch_of
from barewire.mpi import start
from barewire.mpi.prepare import is_crowded, prepare
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples

# The program that measures several patterns in one start of MPI.
SEVERAL = "several"
# The next round may take somewhat longer than the previous one and must still fit into the time.
_LONGER_ROUND = 1.1
# How long a launch of the full form waits while a virtual machine's cores are farther apart than before. They stay so
# for 20 to 40 s (docs/notebook/2026-11-30-half-a-window-for-each-acknowledgement.md).
_NEAR_PATIENCE_S = 90.0


@dataclass(frozen=True)
class Effort:
    """Amount of measurement per point in a launch."""

    samples: int
    seconds: float
    warmup: int
    # A launch hangs if it writes no record for this long.
    patience_s: float


QUICK = Effort(samples=20, seconds=0.01, warmup=1, patience_s=30.0)
FULL = Effort(samples=50, seconds=0.03, warmup=2, patience_s=120.0)


@dataclass(frozen=True)
class ScorePlan:
    """What is measured on one testbed; no round begins after `seconds`, None is no limit."""

    testbed: Testbed
    subjects: tuple[MpiSubject, ...]
    patterns: tuple[Pattern, ...]
    quick: bool
    seed: int
    launches: int
    seconds: float | None = None
    # Overrides each pattern's sizes.
    sizes: tuple[int, ...] | None = None

    @property
    def effort(self) -> Effort:
        """The effort of the form."""
        return QUICK if self.quick else FULL

    def groups(self) -> dict[str, tuple[Pattern, ...]]:
        """Return the patterns by the program that measures them in one launch."""
        chosen = [pattern for pattern in self.patterns if pattern.is_for(self.testbed.ranks, quick=self.quick)]
        together = tuple(pattern for pattern in chosen if not pattern.alone)
        alone = {pattern.test: (pattern,) for pattern in chosen if pattern.alone}
        return ({SEVERAL: together} if together else {}) | alone


@dataclass(frozen=True)
class ScoreOrder:
    """One launch: a program with one or several patterns for one subject."""

    number: int
    test: str
    subject: MpiSubject
    ranks: int
    seed: int

    @property
    def subject_name(self) -> str:
        """The subject's name."""
        return self.subject.name

    @property
    def label(self) -> str:
        """A description of the launch."""
        return f"{self.test} {self.subject.name} × {self.ranks}"


@dataclass(frozen=True)
class ScoreCampaign:
    """Launches on one testbed; `programs` has their paths by library and program.

    A failed launch is recorded with its samples so far, and the campaign continues: a defect of one library must not
    prevent measurements of the others.
    """

    site: MpiSite
    plan: ScorePlan
    programs: Mapping[tuple[str, str], str]
    clock: Callable[[], float] = time.monotonic

    @property
    def stopping_rule(self) -> StoppingRule:
        """A fixed number of rounds, so that the intervals of all subjects are comparable."""
        return StoppingRule(self.plan.launches, self.plan.launches, despite_failures=True)

    def rounds(self) -> Iterator[list[ScoreOrder]]:
        """Rounds of launches in an order drawn from the seed, as long as time remains."""
        plan, generator = self.plan, random.Random(self.plan.seed)
        numbers = itertools.count()
        started = previous = self.clock()
        for number in range(plan.launches):
            now = self.clock()
            if number and plan.seconds is not None and now - started + _LONGER_ROUND * (now - previous) > plan.seconds:
                return
            previous = now
            cells = list(itertools.product(plan.groups(), plan.subjects))
            generator.shuffle(cells)
            ranks = plan.testbed.ranks
            yield [
                ScoreOrder(next(numbers), test, subject, ranks, generator.getrandbits(31)) for test, subject in cells
            ]

    def launch(self, order: ScoreOrder, records: Path) -> None:
        """Start mpirun once."""
        program = [self.programs[order.subject.library.name, order.test], *self._arguments(order, records)]
        shares = self.site.shares(order.ranks)
        job = prepare(order.subject.library, order.subject.requested, shares, program, self.site.lab, pinned=True)
        with tempfile.TemporaryFile("w+") as output:
            patience_s = self.plan.effort.patience_s
            code = start.run_watched(job, self.site.lab, output, records, patience_s)
            raise_failure(code, order.test, f"launch {order.number} ({order.label})", output, patience_s)

    def read(self, order: ScoreOrder, records: Path) -> LaunchRecords:
        """Read its records, all written by the first rank."""
        return read_mpi_records(records, order.number, order.subject.name)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series; the link is their limit if each rank has its own host."""
        return series_from_samples(frame, self.site.link, hosts=self.site.hosts)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add warnings: failed launches, and what programs omitted."""
        failures = [launch.error for launch in run.launches if launch.error is not None]
        return replace(run, warnings=(*run.warnings, *failures, *left_out(run)))

    def _arguments(self, order: ScoreOrder, records: Path) -> list[str]:
        plan, arguments = self.plan, list[str]()
        for pattern in plan.groups()[order.test]:
            options: dict[str, object] = {
                "--output": records.absolute(),
                "--seed": order.seed,
                "--variants": ",".join(pattern.quick if plan.quick else pattern.variants) or None,
                "--samples": plan.effort.samples,
                "--seconds": plan.effort.seconds,
                "--warmup": plan.effort.warmup,
            }
            if pattern.has_sizes:
                sizes = plan.sizes or pattern.sizes(order.ranks, quick=plan.quick)
                options["--sizes"] = ",".join(map(str, sizes))
            values = [text for name, value in options.items() if value is not None for text in (name, str(value))]
            prefix = [] if pattern.alone else [*(["+"] if arguments else []), pattern.test]
            arguments += [*prefix, *values, *pattern.options]
        return arguments


def measure_testbed(
    campaign: ScoreCampaign,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None,
    warnings: Sequence[str],
    progress: Progress,
) -> Run:
    """Measure one testbed into `directory`, which must not contain a run; return the run, which is also on disk."""
    site, plan = campaign.site, campaign.plan
    if is_crowded(site.shares(plan.testbed.ranks), site.lab):
        warnings = [*warnings, f"{plan.testbed.ranks} ranks share the cores: times include scheduling delays"]
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=_parameters(site, plan),
        environment=describe_environment(site.stations(), site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    watch = watch_of(site.stations().values(), 0.0 if plan.quick else _NEAR_PATIENCE_S)
    return run_campaign(campaign, directory, run, progress, watch)


def _parameters(site: MpiSite, plan: ScorePlan) -> dict[str, Any]:
    patterns = [pattern for group in plan.groups().values() for pattern in group]
    return {
        "kind": "mpi",
        "testbed": plan.testbed.name,
        "competitors": list(plan.testbed.competitors),
        "quick": plan.quick,
        "tests": list(dict.fromkeys(pattern.test for pattern in patterns)),
        "subjects": [subject.name for subject in plan.subjects],
        "libraries": {subject.library.name: str(subject.library) for subject in plan.subjects},
        "ranks": [plan.testbed.ranks],
        "hosts": site.hosts,
        "sizes": None if plan.sizes is None else list(plan.sizes),
        "patterns": [asdict(pattern) for pattern in patterns],
        "effort": asdict(plan.effort),
        "launches": plan.launches,
        "seconds": plan.seconds,
        "rate_bit_s": site.link.rate_bit_s,
        "mtu": site.link.mtu,
    }
