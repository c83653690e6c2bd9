# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the C suite: launches of mpirun, every library and fabric once per test, number of ranks and round."""

import itertools
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import polars as pl

from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import Lab
from barewire.measure.environment import describe_environment
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.mpi_subjects import MpiSubject
from barewire.measure.records import LaunchRecords
from barewire.measure.session import Enough, Progress, new_run, run_campaign
from barewire.measure.sites import Station
from barewire.models.wire import Link
from barewire.mpi import Place, spread, start
from barewire.mpi.prepare import is_crowded, prepare
from barewire.results import Run, Series, series_from_samples
from barewire.results.derived import derived_samples

# A program's own message is one line; what a launcher adds is many.
_LINES_SHOWN = 12
_ERRORS: dict[int, type[BarewireError]] = {2: WrongUse, 3: MachineCannot}


@dataclass(frozen=True)
class MpiSite:
    """Where ranks are: in a lab or on real hosts, and the link that joins them."""

    places: tuple[Place, ...]
    link: Link
    lab: Lab | None = None
    # Hosts that there are, if a launcher of its own knows them and `places` does not (Slurm).
    allocated: int | None = None

    @property
    def hosts(self) -> int:
        """How many hosts."""
        return self.allocated or len(self.places)

    def shares(self, ranks: int) -> list[tuple[str, int]]:
        """How many ranks each host gets; WrongUse if there are more than places."""
        return spread(ranks, self.places)

    def stations(self) -> dict[str, Station]:
        """What a run's environment says of the hosts."""
        if self.lab is None:
            return {f"host_{number}": Station(place.host, None) for number, place in enumerate(self.places, 1)}
        return {host.name: Station(host.name, host.interface, cpus=host.cpus) for host in self.lab.hosts}


@dataclass(frozen=True)
class MpiPlan:
    """What a run measures and when it has measured enough; what is None is left to the programs."""

    tests: tuple[str, ...]
    subjects: tuple[MpiSubject, ...]
    ranks: tuple[int, ...]
    seed: int
    sizes: tuple[int, ...] | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[int | None, ...] = (None,)
    walk_bytes: int | None = None
    samples: int | None = None
    seconds: float | None = None
    warmup: int | None = None
    # Options of the tests' own.
    options: tuple[str, ...] = ()
    enough: Enough = field(default_factory=Enough)
    # A launch without a new record for so long hangs.
    patience_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.patience_s > 0:
            raise WrongUse(f"--patience is a number of seconds above 0, not {self.patience_s}")


@dataclass(frozen=True)
class MpiOrder:
    """What one launch shall measure."""

    number: int
    test: str
    subject: MpiSubject
    ranks: int
    pairs: int | None
    seed: int

    @property
    def subject_name(self) -> str:
        """Of what."""
        return self.subject.name

    @property
    def doing(self) -> str:
        """The launch in words."""
        at_once = "" if self.pairs is None else f", pairs {self.pairs}"
        return f"{self.test} {self.subject.name} × {self.ranks}{at_once}"


@dataclass(frozen=True)
class MpiCampaign:
    """Launches of the C suite; `programs` has their paths by library and test."""

    site: MpiSite
    plan: MpiPlan
    programs: Mapping[tuple[str, str], str]

    @property
    def enough(self) -> Enough:
        """As planned."""
        return self.plan.enough

    def rounds(self) -> Iterator[list[MpiOrder]]:
        """Rounds of launches in an order drawn from the seed; each launch has contents of its own."""
        plan, generator = self.plan, random.Random(self.plan.seed)
        numbers = itertools.count()
        for _ in range(plan.enough.launches_max):
            cells = list(itertools.product(plan.tests, plan.subjects, plan.ranks, plan.pairs))
            generator.shuffle(cells)
            yield [MpiOrder(next(numbers), *cell, seed=generator.getrandbits(31)) for cell in cells]

    def launch(self, order: MpiOrder, records: Path) -> None:
        """One start of mpirun; raises what it ended with, with the last of what it said."""
        program = [self.programs[order.subject.library.name, order.test], *self._arguments(order, records)]
        shares = self.site.shares(order.ranks)
        job = prepare(order.subject.library, order.subject.wishes, shares, program, self.site.lab, pinned=True)
        with tempfile.TemporaryFile("w+") as said:
            code = start.run_watched(job, self.site.lab, said, records, self.plan.patience_s)
            launch = f"launch {order.number} ({order.doing})"
            raise_failure(code, order.test, launch, said, self.plan.patience_s)

    def read(self, order: MpiOrder, records: Path) -> LaunchRecords:
        """Its records, all written by the first rank."""
        return read_mpi_records(records, order.number, order.subject.name)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Judged by the link where each rank has a host of its own."""
        return series_from_samples(frame, self.site.link, hosts=self.site.hosts)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """What the programs left out, and what could not be derived from a launch's curves."""
        return replace(run, warnings=(*run.warnings, *left_out(run), *derived_samples(frame)[1]))

    def _arguments(self, order: MpiOrder, records: Path) -> list[str]:
        plan = self.plan
        options: dict[str, object] = {
            "--output": records.absolute(),
            "--seed": order.seed,
            "--variants": plan.variants.get(order.test),
            "--sizes": None if plan.sizes is None else ",".join(map(str, plan.sizes)),
            "--pairs": order.pairs,
            "--walk": plan.walk_bytes,
            "--samples": plan.samples,
            "--seconds": plan.seconds,
            "--warmup": plan.warmup,
        }
        given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
        return [*given, *plan.options]


def measure_mpi(
    campaign: MpiCampaign,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    progress: Progress = lambda done, total, doing: None,
) -> Run:
    """Measure into `directory`, which must not hold a run yet; the run, which is also on disk."""
    site, plan = campaign.site, campaign.plan
    # Wrong numbers of ranks are wrong use before anything is measured.
    crowded = [ranks for ranks in plan.ranks if is_crowded(site.shares(ranks), site.lab)]
    if crowded:
        few = ", ".join(map(str, crowded))
        warnings = [*warnings, f"more ranks than cores ({few}): every time there includes the scheduler's"]
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=_parameters(site, plan),
        environment=describe_environment(site.stations(), site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(campaign, directory, run, progress)


def left_out(run: Run) -> tuple[str, ...]:
    """One sentence for each point that a program did not measure, the same for all launches."""
    told = [
        f"{launch.test} {launch.subject}: {_point(one['variant'], one['message_bytes'])} is left out: {one['reason']}"
        for launch in run.launches
        for one in launch.details.get("left_out", ())
    ]
    return tuple(dict.fromkeys(told))


def _point(variant: str, message_bytes: int) -> str:
    """A variant and, where it has one, its size."""
    return f"{variant}, {message_bytes} bytes" if message_bytes else variant


def _parameters(site: MpiSite, plan: MpiPlan) -> dict[str, Any]:
    libraries = {subject.library.name: str(subject.library) for subject in plan.subjects}
    return {
        "kind": "mpi",
        "tests": list(plan.tests),
        "subjects": [subject.name for subject in plan.subjects],
        "libraries": libraries,
        "ranks": list(plan.ranks),
        "hosts": site.hosts,
        "sizes": None if plan.sizes is None else list(plan.sizes),
        "variants": dict(plan.variants),
        "pairs": list(plan.pairs),
        "walk_bytes": plan.walk_bytes,
        "samples": plan.samples,
        "seconds_per_point": plan.seconds,
        "warmup": plan.warmup,
        "options": list(plan.options),
        **asdict(plan.enough),
        "patience_s": plan.patience_s,
        "rate_bit_s": site.link.rate_bit_s,
        "mtu": site.link.mtu,
    }


def raise_failure(code: int | None, test: str, launch: str, said: IO[str], patience_s: float) -> None:
    """Raise what a program of the suite ended with, if that is a failure; `code` is None for one that hung.

    `launch` names it, `said` is what it and its launcher printed.
    """
    if code == 0:
        return
    said.seek(0)
    lines = [line.rstrip() for line in said.read().splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(f"{test}: ")]
    if code in _ERRORS and own:
        raise _ERRORS[code](f"{launch}: {own[-1]}")
    what = f"hangs: no new record for {patience_s:g} s" if code is None else f"ended with code {code}"
    # A rank that found a result wrong says so; a launcher's report of it follows and says less.
    last = own[-1:] + lines[-_LINES_SHOWN:] if own and own[-1] not in lines[-_LINES_SHOWN:] else lines[-_LINES_SHOWN:]
    told = "\n".join(f"  {line}" for line in last) or "  nothing"
    raise MeasurementFailed(f"{launch} {what}. What was said last:\n{told}")
