# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the probe: every transport once per test and round, the floor beside them where the link has no rate."""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import WrongUse
from barewire.measure.environment import describe_environment
from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import LaunchRecords, read_records
from barewire.measure.session import Enough, Progress, new_run, run_campaign
from barewire.measure.sites import Site
from barewire.measure.subjects import TUNED, Subject, floors_of
from barewire.models.naming import PACKET
from barewire.results import Run, Series, series_from_samples, shared_from_samples


@dataclass(frozen=True)
class Plan:
    """What a run measures and when it has measured enough; every round launches each subject once per test."""

    tests: tuple[str, ...]
    subjects: tuple[Subject, ...]
    sizes: tuple[int, ...]
    seed: int
    pairs: int = 1
    # Numbers of processes that measure at once, each a series of its own; None leaves all pairs in one process.
    processes: tuple[int, ...] | None = None
    cache: bool = True
    walk_bytes: int | None = None
    # Of endpoints and messages: what goes before both sides' tuning files.
    tuned: tuple[tuple[str, int], ...] = ()
    effort: Effort = field(default_factory=Effort)
    enough: Enough = field(default_factory=Enough)

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.processes is not None:
            self._check_processes(self.processes)
        if self.tuned and not any(subject.transport in TUNED for subject in self.subjects):
            raise WrongUse(f"--tuned is for {' and '.join(TUNED)}: add one of them to --transport")

    def _check_processes(self, processes: tuple[int, ...]) -> None:
        if self.pairs > 1:
            raise WrongUse("--pairs are threads of one process: choose --pairs or --processes")
        if "bidirectional" in self.tests:
            raise WrongUse("--processes measure pingpong and stream, where one side alone says when a block ends")
        if max(processes) > 1 and any(subject.link != PACKET for subject in self.subjects):
            raise WrongUse("AF_XDP takes an interface's queue for one process: use --link packet, or --processes 1")


def measure(
    site: Site,
    plan: Plan,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    progress: Progress = lambda done, total, doing: None,
) -> Run:
    """Measure `plan` on `site` into `directory`, which must not hold a run yet; the run, which is also on disk."""
    warnings = ("both sides share a core: every time here includes the scheduler's",) if site.give_way else ()
    stations = {"active": site.active, "passive": site.passive}
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=ProbeCampaign(site, plan).parameters(),
        environment=describe_environment(stations, site.link, lab),
        lab=lab,
        warnings=warnings,
    )
    return run_campaign(ProbeCampaign(site, plan), directory, run, progress)


@dataclass(frozen=True)
class ProbeCampaign:
    """Launches of the probe, and of the floor where that limits it."""

    site: Site
    plan: Plan

    @property
    def enough(self) -> Enough:
        """As planned."""
        return self.plan.enough

    def rounds(self) -> Iterator[list[Order]]:
        """Rounds of launches in an order drawn from the seed; each launch has payloads of its own."""
        return _rounds(self.site, self.plan)

    def launch(self, order: Order, records: Path) -> None:
        """Both sides of one subject."""
        launch(self.site, order, records)

    def read(self, order: Order, records: Path) -> LaunchRecords:
        """The records of the side that keeps the samples."""
        return read_records(records, order.number, order.test, order.subject.name, order.pairs)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Judged by the site's link."""
        return series_from_samples(frame, self.site.link)

    def parameters(self) -> dict[str, Any]:
        """What a run keeps of the plan and the link."""
        plan, link = self.plan, self.site.link
        return {
            "tests": list(plan.tests),
            "subjects": [subject.name for subject in plan.subjects],
            "sizes": list(plan.sizes),
            "pairs": plan.pairs,
            "processes": None if plan.processes is None else list(plan.processes),
            "cache": "on" if plan.cache else "off",
            "walk_bytes": plan.walk_bytes,
            "samples": plan.effort.samples,
            "seconds_per_size": plan.effort.seconds,
            "warmup": plan.effort.warmup,
            "stream_blocks": plan.effort.blocks,
            "tuned": dict(plan.tuned),
            **asdict(plan.enough),
            "rate_bit_s": link.rate_bit_s,
            "mtu": link.mtu,
        }

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """How processes shared the interface, where numbers of them were asked for."""
        return run if self.plan.processes is None else replace(run, shared=shared_from_samples(frame, run.series))


def _rounds(site: Site, plan: Plan) -> Iterator[list[Order]]:
    """Rounds of launches in an order drawn from the seed; each launch has payloads of its own."""
    generator = random.Random(plan.seed)
    # A floor is one pair's, and stands for a link without a rate of its own.
    with_floor = site.can_run_floor and plan.pairs == 1 and plan.processes is None
    subjects = (*plan.subjects, *(floors_of(plan.subjects) if with_floor else ()))
    at_once: tuple[int | None, ...] = (None,) if plan.processes is None else plan.processes
    number = 0
    for _ in range(plan.enough.launches_max):
        cells = [(test, subject, count) for test in plan.tests for subject in subjects for count in at_once]
        generator.shuffle(cells)
        orders = []
        for test, subject, count in cells:
            orders.append(
                Order(
                    number,
                    test,
                    subject,
                    plan.sizes,
                    seed=generator.getrandbits(32),
                    pairs=plan.pairs,
                    processes=count,
                    tuned=plan.tuned if subject.transport in TUNED else (),
                    cache=plan.cache,
                    walk_bytes=plan.walk_bytes,
                    effort=plan.effort,
                )
            )
            number += 1
        yield orders
