# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the C suite: launches of mpirun; each round has every subject once per test and number of ranks."""

import itertools
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import polars as pl

from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse, finite_above_0
from barewire.lab import Lab
from barewire.measure.environment import describe_environment
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.mpi_subjects import MpiSubject
from barewire.measure.records import LaunchRecords
from barewire.measure.refining import check_refinement
from barewire.measure.session import Progress, StoppingRule, new_run, run_campaign
from barewire.measure.sites import Station, watch_of
from barewire.models.derived import DERIVED_TESTS
from barewire.models.wire import Link
from barewire.mpi import HostSlots, spread, start
from barewire.mpi.prepare import is_crowded, prepare
from barewire.results.derived import derived_samples
from barewire.results.quantities import is_kernel
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples

# Tests whose results are parameters of curves, or do not depend on the message size.
_NO_CURVES = (*DERIVED_TESTS, "startup", "footprint")
# A program's own message is one line; a launcher adds many.
_LINES_SHOWN = 12
_ERRORS: dict[int, type[BarewireError]] = {2: WrongUse, 3: MachineCannot}


@dataclass(frozen=True)
class MpiSite:
    """Hosts of the ranks, in a lab or real, and the link between them."""

    host_slots: tuple[HostSlots, ...]
    link: Link
    lab: Lab | None = None
    # Number of hosts where the launcher knows them and `host_slots` does not (Slurm).
    allocated: int | None = None

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.allocated or len(self.host_slots)

    def shares(self, ranks: int) -> list[tuple[str, int]]:
        """Return each host's number of ranks; WrongUse if there are more than slots."""
        return spread(ranks, self.host_slots)

    def stations(self) -> dict[str, Station]:
        """Return the stations for the description of a run's environment."""
        if self.lab is None:
            return {f"host_{number}": Station(entry.host, None) for number, entry in enumerate(self.host_slots, 1)}
        return {host.name: Station(host.name, host.interface, cpus=host.cpus) for host in self.lab.hosts}


@dataclass(frozen=True)
class MpiPlan:
    """What a run measures, and its stopping rule; None leaves a value to the programs."""

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
    # Further options of the tests.
    options: tuple[str, ...] = ()
    stopping_rule: StoppingRule = field(default_factory=StoppingRule)
    # A launch hangs if it writes no record for this long.
    patience_s: float = 120.0

    @property
    def mtus(self) -> list[int]:
        """The MTUs of a run of several; none if all subjects have the site's."""
        return sorted({subject.mtu for subject in self.subjects if subject.mtu is not None})

    def __post_init__(self) -> None:
        """Reject invalid values."""
        finite_above_0("--patience", self.patience_s)
        if self.seconds is not None:
            finite_above_0("--seconds", self.seconds)
        if self.stopping_rule.refinement is not None:
            other = [test for test in self.tests if test in _NO_CURVES or is_kernel(test)]
            if other:
                raise WrongUse(f"--refine needs a time or a rate for each message size, which {other[0]} does not give")
            check_refinement(self.stopping_rule.refinement, self.sizes, self.stopping_rule.launches_max)


@dataclass(frozen=True)
class MpiOrder:
    """One planned launch."""

    number: int
    test: str
    subject: MpiSubject
    ranks: int
    pairs: int | None
    seed: int
    # None leaves them to the program.
    sizes: tuple[int, ...] | None = None

    @property
    def subject_name(self) -> str:
        """The subject's name."""
        return self.subject.name

    @property
    def label(self) -> str:
        """A description of the launch."""
        pairs = "" if self.pairs is None else f", pairs {self.pairs}"
        return f"{self.test} {self.subject.name} × {self.ranks}{pairs}"


@dataclass(frozen=True)
class MpiCampaign:
    """Launches of the C suite; `programs` has their paths by library and test.

    Subjects with an MTU of their own run on that of `sites_by_mtu`; the sites differ in nothing else.
    """

    site: MpiSite
    plan: MpiPlan
    programs: Mapping[tuple[str, str], str]
    sites_by_mtu: Mapping[int, MpiSite] = field(default_factory=dict)

    @property
    def stopping_rule(self) -> StoppingRule:
        """The plan's stopping rule."""
        return self.plan.stopping_rule

    def rounds(self) -> Iterator[list[MpiOrder]]:
        """Rounds of launches in an order drawn from the seed; each launch has its own message contents."""
        plan, generator = self.plan, random.Random(self.plan.seed)
        numbers = itertools.count()
        for _ in plan.stopping_rule.round_numbers():
            cells = list(itertools.product(plan.tests, plan.subjects, plan.ranks, plan.pairs))
            generator.shuffle(cells)
            yield [MpiOrder(next(numbers), *cell, generator.getrandbits(31), plan.sizes) for cell in cells]

    def launch(self, order: MpiOrder, records: Path) -> None:
        """Start mpirun once; raise its failure with the end of its output."""
        program = [self.programs[order.subject.library.name, order.test], *self._arguments(order, records)]
        subject = order.subject
        site = self.site if subject.mtu is None else self.sites_by_mtu[subject.mtu]
        job = prepare(subject.library, subject.requested, site.shares(order.ranks), program, site.lab, pinned=True)
        with tempfile.TemporaryFile("w+") as output:
            code = start.run_watched(job, site.lab, output, records, self.plan.patience_s)
            launch = f"launch {order.number} ({order.label})"
            raise_failure(code, order.test, launch, output, self.plan.patience_s)

    def read(self, order: MpiOrder, records: Path) -> LaunchRecords:
        """Read its records, all written by the first rank."""
        return read_mpi_records(records, order.number, order.subject.name)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series; the link is their limit if each rank has its own host."""
        rule = self.stopping_rule
        return series_from_samples(
            frame, self.site.link, hosts=self.site.hosts, precision=rule.precision, confidence=rule.confidence
        )

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add warnings: what the programs omitted, and what could not be derived from a launch's curves."""
        return replace(run, warnings=(*run.warnings, *left_out(run), *derived_samples(frame)[1]))

    def _arguments(self, order: MpiOrder, records: Path) -> list[str]:
        plan = self.plan
        options: dict[str, object] = {
            "--output": records.absolute(),
            "--seed": order.seed,
            "--variants": plan.variants.get(order.test),
            "--sizes": None if order.sizes is None else ",".join(map(str, order.sizes)),
            "--pairs": order.pairs,
            "--walk-bytes": plan.walk_bytes,
            "--samples": plan.samples,
            "--seconds": plan.seconds,
            "--warmup": plan.warmup,
        }
        arguments = [text for name, value in options.items() if value is not None for text in (name, str(value))]
        return [*arguments, *plan.options]


def measure_mpi(
    campaign: MpiCampaign,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    progress: Progress = lambda done, total, label: None,
) -> Run:
    """Measure into `directory`, which must not contain a run; return the run, which is also on disk."""
    site, plan = campaign.site, campaign.plan
    # Too many ranks are wrong use, reported before anything is measured.
    crowded = [ranks for ranks in plan.ranks if is_crowded(site.shares(ranks), site.lab)]
    if crowded:
        numbers = ", ".join(map(str, crowded))
        warnings = [*warnings, f"more ranks than cores ({numbers}): their times include scheduling delays"]
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=_parameters(site, plan),
        environment=describe_environment(site.stations(), site.link, lab, plan.mtus),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(campaign, directory, run, progress, watch_of(site.stations().values()))


def left_out(run: Run) -> tuple[str, ...]:
    """Return a sentence for each point that a program did not measure, without repetitions across launches."""
    sentences = [
        f"{launch.test} {launch.subject}: {_described(point)} is left out: {point['reason']}"
        for launch in run.launches
        for point in launch.details.get("left_out", ())
    ]
    return tuple(dict.fromkeys(sentences))


def _described(point: Mapping[str, Any]) -> str:
    """Return a variant and its size, if it has one."""
    variant, message_bytes = point["variant"], point["message_bytes"]
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
        **asdict(plan.stopping_rule),
        "patience_s": plan.patience_s,
        "rate_bit_s": site.link.rate_bit_s,
        "mtu": plan.mtus or site.link.mtu,
    }


def raise_failure(code: int | None, test: str, launch: str, output: IO[str], patience_s: float) -> None:
    """Raise the failure of a program of the suite; `code` is None if it hung.

    `launch` names the launch, `output` is what the program and its launcher printed.
    """
    if code == 0:
        return
    output.seek(0)
    lines = [line.rstrip() for line in output.read().splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith(f"{test}: ")]
    if code in _ERRORS and messages:
        raise _ERRORS[code](f"{launch}: {messages[-1]}")
    outcome = f"hangs: no new record for {patience_s:g} s (--patience)" if code is None else f"ended with code {code}"
    # A rank that found a wrong result reports it; a launcher's message about it follows and is less specific.
    last = (
        messages[-1:] + lines[-_LINES_SHOWN:]
        if messages and messages[-1] not in lines[-_LINES_SHOWN:]
        else lines[-_LINES_SHOWN:]
    )
    excerpt = "\n".join(f"  {line}" for line in last) or "  nothing"
    raise MeasurementFailed(f"{launch} {outcome}. Last output:\n{excerpt}")
