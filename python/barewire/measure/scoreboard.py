# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard's runs: on each testbed every library over every fabric, many patterns in one launch of mpirun."""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed
from barewire.measure.environment import describe_environment
from barewire.measure.mpi import MpiSite, left_out, raise_failure
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.mpi_subjects import MpiSubject
from barewire.measure.patterns import Pattern, Testbed
from barewire.measure.records import LaunchRecords
from barewire.measure.session import Enough, Progress, new_run, run_campaign
from barewire.mpi import start
from barewire.mpi.prepare import is_crowded, prepare
from barewire.results import Run, Series, series_from_samples

# The program that measures several patterns in one start of MPI.
SEVERAL = "several"
# A round that takes as long as the one before, and somewhat more, must fit.
_LONGER_ROUND = 1.1


@dataclass(frozen=True)
class Effort:
    """How much of each point a launch measures."""

    samples: int
    seconds: float
    warmup: int
    # A launch without a new record for so long hangs.
    patience_s: float


QUICK = Effort(samples=20, seconds=0.01, warmup=1, patience_s=30.0)
FULL = Effort(samples=50, seconds=0.03, warmup=2, patience_s=120.0)


@dataclass(frozen=True)
class ScorePlan:
    """What is measured on one testbed; `seconds` is when no further round begins, None for never."""

    testbed: Testbed
    subjects: tuple[MpiSubject, ...]
    patterns: tuple[Pattern, ...]
    quick: bool
    seed: int
    launches: int
    seconds: float | None = None
    # Instead of each pattern's own.
    sizes: tuple[int, ...] | None = None

    @property
    def effort(self) -> Effort:
        """As the form has it."""
        return QUICK if self.quick else FULL

    def groups(self) -> dict[str, tuple[Pattern, ...]]:
        """Patterns by the program that measures them in one launch."""
        chosen = [one for one in self.patterns if one.is_for(self.testbed.ranks, quick=self.quick)]
        together = tuple(one for one in chosen if not one.alone)
        alone = {one.test: (one,) for one in chosen if one.alone}
        return ({SEVERAL: together} if together else {}) | alone


@dataclass(frozen=True)
class ScoreOrder:
    """One launch: a program with one pattern or several, of one subject."""

    number: int
    test: str
    subject: MpiSubject
    ranks: int
    seed: int

    @property
    def subject_name(self) -> str:
        """Of what."""
        return self.subject.name

    @property
    def doing(self) -> str:
        """The launch in words."""
        return f"{self.test} {self.subject.name} × {self.ranks}"


@dataclass(frozen=True)
class ScoreCampaign:
    """Launches on one testbed; `programs` has their paths by library and program.

    A launch that fails is on record, with what it gave until then, and the others go on: one library's defect must
    not hide what all others do.
    """

    site: MpiSite
    plan: ScorePlan
    programs: Mapping[tuple[str, str], str]
    failures: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    @property
    def enough(self) -> Enough:
        """So many rounds, whatever comes out: intervals that all subjects have alike."""
        return Enough(self.plan.launches, self.plan.launches)

    def rounds(self) -> Iterator[list[ScoreOrder]]:
        """Rounds of launches in an order drawn from the seed, as far as there is time for them."""
        plan, generator = self.plan, random.Random(self.plan.seed)
        numbers = itertools.count()
        began = last = self.clock()
        for number in range(plan.launches):
            now = self.clock()
            if number and plan.seconds is not None and now - began + _LONGER_ROUND * (now - last) > plan.seconds:
                return
            last = now
            cells = list(itertools.product(plan.groups(), plan.subjects))
            generator.shuffle(cells)
            ranks = plan.testbed.ranks
            yield [
                ScoreOrder(next(numbers), test, subject, ranks, generator.getrandbits(31)) for test, subject in cells
            ]

    def launch(self, order: ScoreOrder, records: Path) -> None:
        """One start of mpirun."""
        program = [self.programs[order.subject.library.name, order.test], *self._arguments(order, records)]
        shares = self.site.shares(order.ranks)
        job = prepare(order.subject.library, order.subject.wishes, shares, program, self.site.lab, pinned=True)
        with tempfile.TemporaryFile("w+") as said:
            patience_s = self.plan.effort.patience_s
            code = start.run_watched(job, self.site.lab, said, records, patience_s)
            try:
                raise_failure(code, order.test, f"launch {order.number} ({order.doing})", said, patience_s)
            except MeasurementFailed as failure:
                self.failures.append(str(failure))

    def read(self, order: ScoreOrder, records: Path) -> LaunchRecords:
        """Its records, all written by the first rank."""
        return read_mpi_records(records, order.number, order.subject.name)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Judged by the link where each rank has a host of its own."""
        return series_from_samples(frame, self.site.link, hosts=self.site.hosts)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Which launches failed, and what programs left out."""
        return replace(run, warnings=(*run.warnings, *self.failures, *left_out(run)))

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
            given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
            first = [] if pattern.alone else [*(["+"] if arguments else []), pattern.test]
            arguments += [*first, *given, *pattern.options]
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
    """Measure one testbed into `directory`, which must not hold a run yet; the run, which is also on disk."""
    site, plan = campaign.site, campaign.plan
    if is_crowded(site.shares(plan.testbed.ranks), site.lab):
        warnings = [*warnings, f"{plan.testbed.ranks} ranks share the cores: times include the scheduler's"]
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=_parameters(site, plan),
        environment=describe_environment(site.stations(), site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(campaign, directory, run, progress)


def _parameters(site: MpiSite, plan: ScorePlan) -> dict[str, Any]:
    patterns = [one for group in plan.groups().values() for one in group]
    return {
        "kind": "mpi",
        "testbed": plan.testbed.name,
        "competitors": list(plan.testbed.competitors),
        "quick": plan.quick,
        "tests": list(dict.fromkeys(one.test for one in patterns)),
        "subjects": [subject.name for subject in plan.subjects],
        "libraries": {subject.library.name: str(subject.library) for subject in plan.subjects},
        "ranks": [plan.testbed.ranks],
        "hosts": site.hosts,
        "sizes": None if plan.sizes is None else list(plan.sizes),
        "patterns": [asdict(one) for one in patterns],
        "effort": asdict(plan.effort),
        "launches": plan.launches,
        "seconds": plan.seconds,
        "rate_bit_s": site.link.rate_bit_s,
        "mtu": site.link.mtu,
    }
