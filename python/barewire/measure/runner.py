# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of the probe: every subject once per test and round, and the floor where the link has no rate."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import WrongUse
from barewire.measure.environment import describe_environment
from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import LaunchRecords, read_records
from barewire.measure.refining import check_refinement
from barewire.measure.session import Progress, StoppingRule, new_run, run_campaign
from barewire.measure.sites import Site, watch_of
from barewire.measure.subjects import TUNED, Subject, check_tuned, floors_of
from barewire.models.naming import XDP_LINKS
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples
from barewire.results.sharing import shared_from_samples


@dataclass(frozen=True)
class Plan:
    """What a run measures, and its stopping rule; every round launches each subject once per test."""

    tests: tuple[str, ...]
    subjects: tuple[Subject, ...]
    sizes: tuple[int, ...]
    seed: int
    pairs: int = 1
    # Numbers of concurrent processes, a series for each; None runs all pairs in one process.
    processes: tuple[int, ...] | None = None
    cache: bool = True
    walk_bytes: int | None = None
    # Tuning of endpoints and messages that overrides both sides' tuning files.
    tuned: tuple[tuple[str, int], ...] = ()
    effort: Effort = field(default_factory=Effort)
    stopping_rule: StoppingRule = field(default_factory=StoppingRule)

    def __post_init__(self) -> None:
        """Reject invalid combinations."""
        check_refinement(self.stopping_rule.refinement, self.sizes, self.stopping_rule.launches_max)
        if self.processes is not None:
            self._check_processes(self.processes)
        if self.tuned:
            check_tuned(self.subjects)
        if self.walk_bytes is not None and self.cache:
            raise WrongUse("--walk-bytes is the size of the buffer with --cache off: add that")

    @property
    def mtus(self) -> list[int]:
        """The MTUs of a run of several; none if all subjects have the site's."""
        return sorted({subject.mtu for subject in self.subjects if subject.mtu is not None})

    def _check_processes(self, processes: tuple[int, ...]) -> None:
        if self.pairs > 1:
            raise WrongUse("--pairs starts threads of one process: choose --pairs or --processes")
        if "bidirectional" in self.tests:
            raise WrongUse(
                "--processes supports pingpong and stream only, where one side determines the end of a block"
            )
        if max(processes) > 1 and any(subject.link in XDP_LINKS for subject in self.subjects):
            raise WrongUse("AF_XDP takes an interface's queue for one process: use --link packet, or --processes 1")


def measure(
    site: Site,
    plan: Plan,
    directory: Path,
    *,
    command: list[str],
    lab: dict[str, Any] | None = None,
    sites_by_mtu: Mapping[int, Site] | None = None,
    progress: Progress = lambda done, total, label: None,
) -> Run:
    """Measure `plan` on `site` into `directory`, which must not contain a run; return the run, also on disk.

    Subjects with an MTU of their own are measured on that of `sites_by_mtu`; the sites differ in nothing else.
    """
    campaign = ProbeCampaign(site, plan, sites_by_mtu or {})
    shared = ("both sides share a core: all times include scheduling delays",) if site.shares_core else ()
    stations = {"active": site.active, "passive": site.passive}
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=campaign.parameters(),
        environment=describe_environment(stations, site.link, lab, plan.mtus),
        lab=lab,
        warnings=(*site.warnings, *shared),
    )
    return run_campaign(campaign, directory, run, progress, watch_of((site.active, site.passive)))


@dataclass(frozen=True)
class ProbeCampaign:
    """Launches of the probe, and of the floor where it is the limit."""

    site: Site
    plan: Plan
    sites_by_mtu: Mapping[int, Site] = field(default_factory=dict)

    @property
    def stopping_rule(self) -> StoppingRule:
        """The plan's stopping rule."""
        return self.plan.stopping_rule

    def rounds(self) -> Iterator[list[Order]]:
        """Rounds of launches in an order drawn from the seed; each launch has its own payloads."""
        return _rounds(self.site, self.plan)

    def launch(self, order: Order, records: Path) -> None:
        """Run both sides of one subject."""
        mtu = order.subject.mtu
        launch(self.site if mtu is None else self.sites_by_mtu[mtu], order, records)

    def read(self, order: Order, records: Path) -> LaunchRecords:
        """Read the records of the side that records the samples."""
        return read_records(records, order.number, order.test, order.subject.name, order.pairs)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series with the site's link as the limit."""
        rule = self.stopping_rule
        return series_from_samples(frame, self.site.link, precision=rule.precision, confidence=rule.confidence)

    def parameters(self) -> dict[str, Any]:
        """Return the run's parameters: the plan and the link."""
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
            **asdict(plan.stopping_rule),
            "rate_bit_s": link.rate_bit_s,
            "mtu": plan.mtus or link.mtu,
        }

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add how processes shared the interface, if the plan has numbers of processes."""
        return run if self.plan.processes is None else replace(run, shared=shared_from_samples(frame, run.series))


def _rounds(site: Site, plan: Plan) -> Iterator[list[Order]]:
    """Yield rounds of launches in an order drawn from the seed; each launch has its own payloads."""
    generator = random.Random(plan.seed)
    # The floor uses one pair; it replaces the limit that a link without a rate lacks.
    with_floor = site.can_run_floor and plan.pairs == 1 and plan.processes is None
    subjects = (*plan.subjects, *(floors_of(plan.subjects) if with_floor else ()))
    process_counts: tuple[int | None, ...] = (None,) if plan.processes is None else plan.processes
    number = 0
    for _ in plan.stopping_rule.round_numbers():
        cells = [(test, subject, count) for test in plan.tests for subject in subjects for count in process_counts]
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
                    tuned=(*plan.tuned, *subject.tuned) if subject.transport in TUNED else (),
                    cache=plan.cache,
                    walk_bytes=plan.walk_bytes,
                    effort=plan.effort,
                )
            )
            number += 1
        yield orders
