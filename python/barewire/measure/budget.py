# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the latency budget: the probe's layers and MPI libraries, one ping-pong each in every round."""

import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MachineCannot
from barewire.measure.environment import describe_environment
from barewire.measure.launch import Effort, Order, launch
from barewire.measure.mpi import MpiCampaign, MpiOrder
from barewire.measure.records import LaunchRecords
from barewire.measure.runner import ProbeCampaign
from barewire.measure.session import Enough, Progress, new_run, run_campaign
from barewire.measure.sites import Site
from barewire.measure.subjects import Subject
from barewire.models.budget import PATH, YARDSTICKS
from barewire.models.naming import FLOOR
from barewire.results import Run, Series, series_from_samples
from barewire.results.budget import KIND

TEST = "pingpong"
# The floor is added where the link has no rate.
SUBJECTS = tuple(Subject(name) for name in (*PATH, *YARDSTICKS) if name != FLOOR)
_TRIAL = Effort(samples=1, seconds=0.001, warmup=1, blocks=1)
_TRIAL_BYTES = 8


@dataclass(frozen=True)
class BudgetCampaign:
    """Launches of both kinds in one order, each subject once in a round; `mpi` is None where there is no library."""

    probe: ProbeCampaign
    mpi: MpiCampaign | None

    @property
    def enough(self) -> Enough:
        """As planned; both plans say the same."""
        return self.probe.plan.enough

    def rounds(self) -> Iterator[list[Order | MpiOrder]]:
        """The rounds of both, each shuffled anew as one."""
        generator, numbers = random.Random(self.probe.plan.seed), itertools.count()
        beside: Iterator[list[MpiOrder]] = itertools.repeat([]) if self.mpi is None else self.mpi.rounds()
        for own, others in zip(self.probe.rounds(), beside, strict=False):
            orders: list[Order | MpiOrder] = [*own, *others]
            generator.shuffle(orders)
            yield [replace(order, number=next(numbers)) for order in orders]

    def launch(self, order: Order | MpiOrder, records: Path) -> None:
        """Whichever it is."""
        if isinstance(order, Order):
            self.probe.launch(order, records)
        else:
            self._library.launch(order, records)

    def read(self, order: Order | MpiOrder, records: Path) -> LaunchRecords:
        """Likewise."""
        return self.probe.read(order, records) if isinstance(order, Order) else self._library.read(order, records)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Judged by the site's link: the two ranks have a host each, as the two probes."""
        return series_from_samples(frame, self.probe.site.link, hosts=2)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """The budget follows from the series."""
        return run

    @property
    def _library(self) -> MpiCampaign:
        assert self.mpi is not None, "an MPI order comes from its campaign"
        return self.mpi


def possible(site: Site, subjects: Sequence[Subject]) -> tuple[tuple[Subject, ...], tuple[str, ...]]:
    """Those that this site can run, and why it cannot the others: each that needs libfabric is tried once."""
    left, reasons = [], []
    # Numbers that no launch of a run has: each listens at an address of its own.
    numbers = itertools.count(1_000_000)
    with tempfile.TemporaryDirectory(prefix="barewire-budget-") as folder:
        for subject in subjects:
            if subject.provider is not None:
                order = Order(next(numbers), TEST, subject, (_TRIAL_BYTES,), seed=1, effort=_TRIAL)
                try:
                    launch(site, order, Path(folder) / f"{order.number}.jsonl")
                except MachineCannot as error:
                    reasons.append(f"{subject.name} is left out: {error}")
                    continue
            left.append(subject)
    return tuple(left), tuple(reasons)


def measure_budget(
    campaign: BudgetCampaign,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    progress: Progress = lambda done, total, doing: None,
) -> Run:
    """Measure into `directory`, which must not hold a run yet; the run, which is also on disk."""
    site = campaign.probe.site
    if site.give_way:
        warnings = [*warnings, "both sides share a core: every time here includes the scheduler's"]
    run = new_run(
        command=command,
        seed=campaign.probe.plan.seed,
        parameters=_parameters(campaign),
        environment=describe_environment({"active": site.active, "passive": site.passive}, site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(campaign, directory, run, progress)


def _parameters(campaign: BudgetCampaign) -> dict[str, Any]:
    libraries = () if campaign.mpi is None else campaign.mpi.plan.subjects
    return {
        **campaign.probe.parameters(),
        "kind": KIND,
        "libraries": {subject.library.name: str(subject.library) for subject in libraries},
        "mpi_subjects": [subject.name for subject in libraries],
        "hosts": 2,
    }
