# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run: launches of every subject in rounds, shuffled by seed, until all series are precise or the budget ends."""

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import BarewireError, MeasurementFailed, WrongUse
from barewire.measure.environment import describe_environment
from barewire.measure.launch import Effort, Order, launch
from barewire.measure.records import LaunchRecords, read_records
from barewire.measure.sites import Site
from barewire.measure.subjects import Subject, floors_of
from barewire.models.naming import PACKET
from barewire.results import (
    SAMPLE_SCHEMA,
    Launch,
    Run,
    Series,
    Stop,
    series_from_samples,
    series_key,
    shared_from_samples,
    write_run,
)
from barewire.results.series import Key
from barewire.stats import is_precise

LAUNCHES_DIRECTORY = "launches"


@dataclass(frozen=True)
class Plan:
    """What a run measures and when it has measured enough.

    Every round launches each subject once per test. There are at least `launches_min` rounds; then as many as it
    takes until the interval of every series' median is within ± `precision`, at most `launches_max` rounds, and
    none is begun after `budget_s` seconds.
    """

    tests: tuple[str, ...]
    subjects: tuple[Subject, ...]
    sizes: tuple[int, ...]
    seed: int
    pairs: int = 1
    # Numbers of processes that measure at once, each a series of its own; None leaves all pairs in one process.
    processes: tuple[int, ...] | None = None
    cache: bool = True
    walk_bytes: int | None = None
    effort: Effort = field(default_factory=Effort)
    launches_min: int = 6
    launches_max: int = 12
    precision: float = 0.02
    budget_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not 1 <= self.launches_min <= self.launches_max:
            raise WrongUse(
                f"there must be at least one launch, and no fewer at most than at least: "
                f"{self.launches_min} to {self.launches_max}"
            )
        if not self.precision > 0 or not self.budget_s > 0:
            raise WrongUse("the precision and the budget must be above 0")
        if self.processes is not None:
            self._check_processes(self.processes)

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
    warnings: tuple[str, ...] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
) -> Run:
    """Measure `plan` on `site` into `directory`, which must not hold a run yet; the run, which is also on disk.

    Whatever ends the measurement early, the samples so far are kept and the run is marked incomplete: then the
    error that ended it is raised once that is on disk.
    """
    if directory.exists() and any(directory.iterdir()):
        raise WrongUse(f"{directory} is not empty; a run needs a directory of its own")
    session = _Session(site, plan, directory, _new_run(site, plan, command, lab, warnings))
    session.prepare()
    stopped_by: BaseException | None = None
    try:
        session.measure(progress)
    except (BarewireError, KeyboardInterrupt) as error:
        stopped_by = error
    run = session.finish(stopped_by)
    if stopped_by is not None:
        raise stopped_by
    if session.corrupt_messages:
        raise MeasurementFailed(f"{session.corrupt_messages} messages arrived with other bytes than were sent")
    return run


class _Session:
    """A run in the making."""

    def __init__(self, site: Site, plan: Plan, directory: Path, run: Run) -> None:
        self.site, self.plan, self.directory, self.run = site, plan, directory, run
        self.launches: list[Launch] = []
        self.frames: list[pl.DataFrame] = []
        self.corrupt_messages = 0
        self._medians: defaultdict[Key, list[float]] = defaultdict(list)
        self._stop_reason: Stop = "incomplete"

    def prepare(self) -> None:
        """A run exists on disk before its first launch, so that nothing that follows can lose it."""
        write_run(self.directory, self.run)
        try:
            (self.directory / LAUNCHES_DIRECTORY).mkdir(exist_ok=True)
        except OSError as error:
            raise MeasurementFailed(f"cannot write {self.directory}: {error.strerror}") from error

    def measure(self, progress: Callable[[int, int, str], None]) -> None:
        """All rounds."""
        began = time.monotonic()
        for round_number, orders in enumerate(_rounds(self.site, self.plan)):
            for order in orders:
                total = self.plan.launches_min * len(orders)
                at_once = "" if order.processes is None else f" × {order.processes}"
                doing = f"{order.test} {order.subject.name}{at_once}"
                progress(len(self.launches), max(total, len(self.launches) + 1), doing)
                self._launch(order)
            if round_number + 1 >= self.plan.launches_min:
                if self._all_precise():
                    self._stop_reason = "converged"
                    return
                if time.monotonic() - began > self.plan.budget_s:
                    break
        self._stop_reason = "budget"

    def finish(self, stopped_by: BaseException | None) -> Run:
        """Make the series, write everything, and drop the launches' own files once they are in the samples."""
        frame = pl.concat(self.frames) if self.frames else pl.DataFrame(schema=SAMPLE_SCHEMA)
        series = tuple(self._stamped(one) for one in series_from_samples(frame, self.site.link))
        reason = None if stopped_by is None else reason_of(stopped_by)
        self.run = replace(
            self.run,
            complete=stopped_by is None,
            stopped_by=reason,
            launches=tuple(self.launches),
            series=series,
            shared=() if self.plan.processes is None else shared_from_samples(frame, series),
        )
        write_run(self.directory, self.run, frame)
        for file in sorted((self.directory / LAUNCHES_DIRECTORY).iterdir()):
            file.unlink()
        (self.directory / LAUNCHES_DIRECTORY).rmdir()
        return self.run

    def _launch(self, order: Order) -> None:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        file = self.directory / LAUNCHES_DIRECTORY / launch_file_name(order.number, order.test, order.subject.name)
        error: BaseException | None = None
        try:
            launch(self.site, order, file)
        except (BarewireError, KeyboardInterrupt) as raised:
            error = raised
        if isinstance(error, WrongUse) and self.launches:
            # What was right for the launches before is no wrong use: something has changed since.
            error = MeasurementFailed(str(error))
        if file.exists():
            records = read_records(file, order.number, order.test, order.subject.name, order.pairs)
        else:
            records = LaunchRecords(pl.DataFrame(schema=SAMPLE_SCHEMA))
        self._keep(order, started, records, error)
        if error is not None:
            raise error

    def _keep(self, order: Order, started: str, records: LaunchRecords, error: BaseException | None) -> None:
        self.frames.append(records.samples)
        self.corrupt_messages += records.corrupt_messages
        complete = error is None and bool(records.end.get("complete"))
        details = {"start": records.start, "end": records.end, "corrupt_messages": records.corrupt_messages}
        self.launches.append(
            Launch(
                index=order.number,
                subject=order.subject.name,
                test=order.test,
                complete=complete,
                error=None if error is None else reason_of(error),
                started=started,
                details=details,
            )
        )
        for one in series_from_samples(records.samples):
            if one.median is not None:
                self._medians[series_key(one)].append(one.median)

    def _all_precise(self) -> bool:
        return all(is_precise(medians, self.plan.precision) for medians in self._medians.values())

    def _stamped(self, one: Series) -> Series:
        """Why this series ended: itself precise, or for lack of budget, or because the run broke off."""
        if self._stop_reason == "incomplete":
            return replace(one, stop="incomplete")
        # Where every sample of every launch was lost, there is no median to be precise.
        medians = self._medians.get(series_key(one))
        precise = medians is not None and is_precise(medians, self.plan.precision)
        return replace(one, stop="converged" if precise else "budget")


def launch_file_name(number: int, test: str, subject: str) -> str:
    """The name of a launch's own file; `parse_launch_file_name` reads it."""
    return f"{number:04d}-{test}-{subject.replace('+', '~').replace('/', '+')}.jsonl"


def parse_launch_file_name(name: str) -> tuple[int, str, str] | None:
    """Number, test and subject of a launch's file; None for any other name."""
    match = re.fullmatch(r"(\d{4,})-([a-z]+)-([a-z0-9_+~-]+)\.jsonl", name)
    return None if match is None else (int(match[1]), match[2], match[3].replace("+", "/").replace("~", "+"))


def _rounds(site: Site, plan: Plan) -> Iterator[list[Order]]:
    """Rounds of launches in an order drawn from the seed; each launch has payloads of its own."""
    generator = random.Random(plan.seed)
    # A floor is one pair's, and stands for a link without a rate of its own.
    with_floor = site.can_run_floor and plan.pairs == 1 and plan.processes is None
    subjects = (*plan.subjects, *(floors_of(plan.subjects) if with_floor else ()))
    at_once: tuple[int | None, ...] = (None,) if plan.processes is None else plan.processes
    number = 0
    for _ in range(plan.launches_max):
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
                    cache=plan.cache,
                    walk_bytes=plan.walk_bytes,
                    effort=plan.effort,
                )
            )
            number += 1
        yield orders


def _new_run(site: Site, plan: Plan, command: list[str], lab: dict[str, Any] | None, warnings: tuple[str, ...]) -> Run:
    now = datetime.now(UTC)
    parameters = {
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
        "launches_min": plan.launches_min,
        "launches_max": plan.launches_max,
        "precision": plan.precision,
        "budget_s": plan.budget_s,
        "rate_bit_s": site.link.rate_bit_s,
        "mtu": site.link.mtu,
    }
    if site.give_way:
        warnings = (*warnings, "both sides share a core: every time here includes the scheduler's")
    return Run(
        id=now.strftime("%Y%m%dT%H%M%S") + f"-{random.SystemRandom().getrandbits(16):04x}",
        created=now.isoformat(timespec="seconds"),
        command=tuple(command),
        seed=plan.seed,
        complete=False,
        stopped_by=None,
        parameters=parameters,
        environment=describe_environment(site, lab),
        lab=lab,
        launches=(),
        series=(),
        warnings=warnings,
    )


def reason_of(error: BaseException) -> str:
    """Why a run ended early, for its record."""
    return "interrupt" if isinstance(error, KeyboardInterrupt) else str(error)
