# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run in the making: launches in rounds, kept as they come, until all series are precise or the budget ends.

What is launched and how its records are read is a campaign's business: of the probe, of MPI programs, of a host.
"""

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import polars as pl

from barewire.errors import BarewireError, MeasurementFailed, WrongUse
from barewire.interrupts import Hold, interrupts_held
from barewire.measure.records import LaunchRecords
from barewire.results import SAMPLE_SCHEMA, Launch, Run, Series, Stop, series_key, write_run
from barewire.results.series import Key
from barewire.stats import is_precise

LAUNCHES_DIRECTORY = "launches"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Enough:
    """When a run has measured enough.

    There are at least `launches_min` rounds; then as many as it takes until the interval of every series' median is
    within ± `precision`, at most `launches_max` rounds, and none is begun after `budget_s` seconds.
    """

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


class AnyOrder(Protocol):
    """One launch to come."""

    @property
    def number(self) -> int:
        """Its place among all launches of the run, from 0."""

    @property
    def test(self) -> str:
        """Which test."""

    @property
    def subject_name(self) -> str:
        """Of what."""

    @property
    def doing(self) -> str:
        """The launch in words, the same in every round."""


OrderT = TypeVar("OrderT", bound=AnyOrder)


class Campaign(Protocol[OrderT]):
    """What a run launches, and what its samples mean."""

    @property
    def enough(self) -> Enough:
        """When to stop."""

    def rounds(self) -> Iterator[Sequence[OrderT]]:
        """Rounds of launches; each has every subject once per test, in an order drawn from the seed."""

    def launch(self, order: OrderT, records: Path) -> None:
        """Run one launch to its end and leave its records in a file, also if it fails."""

    def read(self, order: OrderT, records: Path) -> LaunchRecords:
        """Read that file."""

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series from samples."""

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add to a run that has its series what else follows from all samples."""


def run_campaign(campaign: Campaign[Any], directory: Path, run: Run, progress: Progress) -> Run:
    """Measure into `directory`, which must not hold a run yet; `run` is what is known before the first launch.

    Whatever ends the measurement early, the samples so far are kept and the run is marked incomplete: then the
    error that ended it is raised once that is on disk.
    """
    if directory.exists() and any(directory.iterdir()):
        raise WrongUse(f"{directory} is not empty; a run needs a directory of its own")
    stopped_by: BaseException | None = None
    try:
        # An interrupt ends a launch, never what keeps its samples.
        with interrupts_held() as hold:
            session = Session(campaign, directory, run, hold)
            session.prepare()
            try:
                session.measure(progress)
            except (BarewireError, KeyboardInterrupt) as error:
                stopped_by = error
            done = session.finish(stopped_by)
    except KeyboardInterrupt as late:
        stopped_by = stopped_by or late
    if stopped_by is not None:
        raise stopped_by
    if session.corrupt_messages:
        raise MeasurementFailed(f"{session.corrupt_messages} messages arrived with other bytes than were sent")
    return done


class Session(Generic[OrderT]):
    """A run in the making."""

    def __init__(self, campaign: Campaign[OrderT], directory: Path, run: Run, hold: Hold) -> None:
        """Begin with nothing measured; `hold` lets interrupts through during launches."""
        self.campaign, self.directory, self.run, self._hold = campaign, directory, run, hold
        self.launches: list[Launch] = []
        self.frames: list[pl.DataFrame] = []
        self.corrupt_messages = 0
        self.stop_reason: Stop = "incomplete"
        self._began: set[str] = set()
        self._medians: defaultdict[Key, list[float]] = defaultdict(list)

    def prepare(self) -> None:
        """A run exists on disk before its first launch, so that nothing that follows can lose it."""
        write_run(self.directory, self.run)
        try:
            (self.directory / LAUNCHES_DIRECTORY).mkdir(exist_ok=True)
        except OSError as error:
            raise MeasurementFailed(f"cannot write {self.directory}: {error.strerror}") from error

    def measure(self, progress: Progress) -> None:
        """All rounds."""
        enough = self.campaign.enough
        began = time.monotonic()
        for round_number, orders in enumerate(self.campaign.rounds()):
            for order in orders:
                total = enough.launches_min * len(orders)
                with self._hold.released():
                    progress(len(self.launches), max(total, len(self.launches) + 1), order.doing)
                self._launch(order)
            if round_number + 1 >= enough.launches_min:
                if all(is_precise(medians, enough.precision) for medians in self._medians.values()):
                    self.stop_reason = "converged"
                    return
                if time.monotonic() - began > enough.budget_s:
                    break
        self.stop_reason = "budget"

    def finish(self, stopped_by: BaseException | None) -> Run:
        """Make the series, write everything, and drop the launches' own files once they are in the samples."""
        frame = pl.concat(self.frames) if self.frames else pl.DataFrame(schema=SAMPLE_SCHEMA)
        series = tuple(self.stamped(one) for one in self.campaign.series(frame))
        self.run = replace(
            self.run,
            complete=stopped_by is None,
            stopped_by=None if stopped_by is None else reason_of(stopped_by),
            launches=tuple(self.launches),
            series=series,
        )
        self.run = self.campaign.conclude(self.run, frame)
        write_run(self.directory, self.run, frame)
        for file in sorted((self.directory / LAUNCHES_DIRECTORY).iterdir()):
            file.unlink()
        (self.directory / LAUNCHES_DIRECTORY).rmdir()
        return self.run

    def stamped(self, one: Series) -> Series:
        """Why this series ended: itself precise, or for lack of budget, or because the run broke off."""
        if self.stop_reason == "incomplete":
            return replace(one, stop="incomplete")
        # Where every sample of every launch was lost, there is no median to be precise.
        precise = bool(one.launch_medians) and is_precise(one.launch_medians, self.campaign.enough.precision)
        return replace(one, stop="converged" if precise else "budget")

    def _launch(self, order: OrderT) -> None:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        file = self.directory / LAUNCHES_DIRECTORY / launch_file_name(order.number, order.test, order.subject_name)
        error: BaseException | None = None
        try:
            with self._hold.released():
                self.campaign.launch(order, file)
        except (BarewireError, KeyboardInterrupt) as raised:
            error = raised
        if isinstance(error, WrongUse) and order.doing in self._began:
            # What was right in the rounds before is no wrong use: something has changed since.
            error = MeasurementFailed(str(error))
        self._began.add(order.doing)
        if file.exists():
            records = self.campaign.read(order, file)
        else:
            records = LaunchRecords(pl.DataFrame(schema=SAMPLE_SCHEMA))
        self._keep(order, started, records, error)
        if error is not None:
            raise error

    def _keep(self, order: OrderT, started: str, records: LaunchRecords, error: BaseException | None) -> None:
        self.frames.append(records.samples)
        self.corrupt_messages += records.corrupt_messages
        complete = error is None and bool(records.end.get("complete"))
        details: dict[str, Any] = {
            "start": records.start,
            "end": records.end,
            "corrupt_messages": records.corrupt_messages,
        }
        if records.choices:
            details["choices"] = list(records.choices)
        if records.left_out:
            details["left_out"] = list(records.left_out)
        self.launches.append(
            Launch(
                index=order.number,
                subject=order.subject_name,
                test=order.test,
                complete=complete,
                error=None if error is None else reason_of(error),
                started=started,
                details=details,
            )
        )
        for one in self.campaign.series(records.samples):
            if one.median is not None:
                self._medians[series_key(one)].append(one.median)


def new_run(
    *,
    command: Sequence[str],
    seed: int,
    parameters: dict[str, Any],
    environment: dict[str, Any],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> Run:
    """A run of now, before its first launch."""
    now = datetime.now(UTC)
    return Run(
        id=now.strftime("%Y%m%dT%H%M%S") + f"-{random.SystemRandom().getrandbits(16):04x}",
        created=now.isoformat(timespec="seconds"),
        command=tuple(command),
        seed=seed,
        complete=False,
        stopped_by=None,
        parameters=parameters,
        environment=environment,
        lab=lab,
        launches=(),
        series=(),
        warnings=tuple(warnings),
    )


def launch_file_name(number: int, test: str, subject: str) -> str:
    """The name of a launch's own file; `parse_launch_file_name` reads it."""
    return f"{number:04d}-{test}-{subject.replace('+', '~').replace('/', '+')}.jsonl"


def parse_launch_file_name(name: str) -> tuple[int, str, str] | None:
    """Number, test and subject of a launch's file; None for any other name."""
    match = re.fullmatch(r"(\d{4,})-([a-z]+)-([\w.+~=:-]+)\.jsonl", name, re.ASCII)
    return None if match is None else (int(match[1]), match[2], match[3].replace("+", "/").replace("~", "+"))


def reason_of(error: BaseException) -> str:
    """Why a run ended early, for its record."""
    return "interrupt" if isinstance(error, KeyboardInterrupt) else str(error)
