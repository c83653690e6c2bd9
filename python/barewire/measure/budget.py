# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the latency budget: in each round one ping-pong of each layer of the probe and of each MPI library."""

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
from barewire.measure.session import Progress, StoppingRule, new_run, run_campaign
from barewire.measure.sites import Site, watch_of
from barewire.measure.subjects import Subject
from barewire.models.budget import PATH, YARDSTICKS
from barewire.models.naming import FLOOR
from barewire.results.budget import KIND
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples

TEST = "pingpong"
# The floor is added on links without a rate.
SUBJECTS = tuple(Subject(name) for name in (*PATH, *YARDSTICKS) if name != FLOOR)
_TRIAL = Effort(samples=1, seconds=0.001, warmup=1, blocks=1)
_TRIAL_BYTES = 8


@dataclass(frozen=True)
class BudgetCampaign:
    """Launches of the probe and of MPI in one order, each subject once per round; `mpi` is None without a library."""

    probe: ProbeCampaign
    mpi: MpiCampaign | None

    @property
    def stopping_rule(self) -> StoppingRule:
        """The stopping rule, which both plans share."""
        return self.probe.plan.stopping_rule

    def rounds(self) -> Iterator[list[Order | MpiOrder]]:
        """Rounds of both campaigns, each shuffled as a whole."""
        generator, numbers = random.Random(self.probe.plan.seed), itertools.count()
        mpi_rounds: Iterator[list[MpiOrder]] = itertools.repeat([]) if self.mpi is None else self.mpi.rounds()
        for probe_orders, mpi_orders in zip(self.probe.rounds(), mpi_rounds, strict=False):
            orders: list[Order | MpiOrder] = [*probe_orders, *mpi_orders]
            generator.shuffle(orders)
            yield [replace(order, number=next(numbers)) for order in orders]

    def launch(self, order: Order | MpiOrder, records: Path) -> None:
        """Start the order's program."""
        if isinstance(order, Order):
            self.probe.launch(order, records)
        else:
            self._library.launch(order, records)

    def read(self, order: Order | MpiOrder, records: Path) -> LaunchRecords:
        """Read the records of the order's program."""
        return self.probe.read(order, records) if isinstance(order, Order) else self._library.read(order, records)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series with the site's link as the limit: the two ranks have a host each, like the two probes."""
        rule = self.stopping_rule
        return series_from_samples(
            frame, self.probe.site.link, hosts=2, precision=rule.precision, confidence=rule.confidence
        )

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Return the run unchanged: the budget is derived from its series."""
        return run

    @property
    def _library(self) -> MpiCampaign:
        assert self.mpi is not None, "an MPI order comes from its campaign"
        return self.mpi


def available_subjects(site: Site, subjects: Sequence[Subject]) -> tuple[tuple[Subject, ...], tuple[str, ...]]:
    """Return the subjects that this site can run, and the reasons for the rest; each over libfabric is tried once."""
    available, reasons = [], []
    # Numbers that no launch of a run has: each launch listens at its own address.
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
            available.append(subject)
    return tuple(available), tuple(reasons)


def measure_budget(
    campaign: BudgetCampaign,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    progress: Progress = lambda done, total, label: None,
) -> Run:
    """Measure into `directory`, which must not contain a run; return the run, which is also on disk."""
    site = campaign.probe.site
    if site.shares_core:
        warnings = [*warnings, "both sides share a core: all times include scheduling delays"]
    run = new_run(
        command=command,
        seed=campaign.probe.plan.seed,
        parameters=_parameters(campaign),
        environment=describe_environment({"active": site.active, "passive": site.passive}, site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(campaign, directory, run, progress, watch_of((site.active, site.passive)))


def _parameters(campaign: BudgetCampaign) -> dict[str, Any]:
    libraries = () if campaign.mpi is None else campaign.mpi.plan.subjects
    return {
        **campaign.probe.parameters(),
        "kind": KIND,
        "libraries": {subject.library.name: str(subject.library) for subject in libraries},
        "mpi_subjects": [subject.name for subject in libraries],
        "hosts": 2,
    }
