# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run in progress: launches in rounds, recorded at once, until all series are precise or the budget is spent.

A campaign (of the probe, of MPI programs, of a host) defines the launches and how their records are read.
"""

import itertools
import math
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import polars as pl

from barewire.errors import BarewireError, MeasurementFailed, WrongUse, finite_above_0
from barewire.interrupts import Hold, interrupts_held
from barewire.measure.distance import CoreWatch
from barewire.measure.records import LaunchRecords
from barewire.measure.refining import SizePlanner
from barewire.results.run import Launch, Run, Series, Stop
from barewire.results.schema import SAMPLE_SCHEMA
from barewire.results.series import Key, series_key
from barewire.results.store import exclusive, write_run
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import PRECISION, is_precise
from barewire.stats.refinement import Refinement

LAUNCHES_DIRECTORY = "launches"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class StoppingRule:
    """When a run has measured enough.

    There are at least `launches_min` rounds, then more until the interval of every series' median, of this
    `confidence`, is within ± `precision`, at most `launches_max` in all. No round begins after `budget_s` seconds, not
    counting the minimum.
    With a `refinement` this applies to each size separately, sizes are added, and the budget limits all rounds.
    A launch that fails ends the run, unless `despite_failures`: then it is recorded, and the run continues.
    """

    launches_min: int = 6
    launches_max: int = 12
    precision: float = PRECISION
    budget_s: float = 120.0
    refinement: Refinement | None = None
    confidence: float = CONFIDENCE
    despite_failures: bool = False

    def __post_init__(self) -> None:
        """Reject invalid values."""
        if not 1 <= self.launches_min <= self.launches_max:
            raise WrongUse(f"--launches takes N or N..M with 1 ≤ N ≤ M, not {self.launches_min}..{self.launches_max}")
        finite_above_0("--precision", self.precision, "a share")
        finite_above_0("--budget", self.budget_s)

    def round_numbers(self) -> Iterable[int]:
        """Numbers of the rounds, from 0; with a refinement the measured values determine the last one."""
        return range(self.launches_max) if self.refinement is None else itertools.count()


class AnyOrder(Protocol):
    """One planned launch."""

    @property
    def number(self) -> int:
        """Index among all launches of the run, from 0."""

    @property
    def test(self) -> str:
        """The test."""

    @property
    def subject_name(self) -> str:
        """The subject's name."""

    @property
    def label(self) -> str:
        """A description of the launch, the same in every round."""


OrderT = TypeVar("OrderT", bound=AnyOrder)


class Campaign(Protocol[OrderT]):
    """Defines the launches of a run and the meaning of its samples."""

    @property
    def stopping_rule(self) -> StoppingRule:
        """The stopping rule."""

    def rounds(self) -> Iterator[Sequence[OrderT]]:
        """Return rounds of launches; each has every subject once per test, in an order drawn from the seed."""

    def launch(self, order: OrderT, records: Path) -> None:
        """Run one launch and leave its records in a file, even if it fails."""

    def read(self, order: OrderT, records: Path) -> LaunchRecords:
        """Read that file."""

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series from samples."""

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add to a run with series whatever else is derived from all samples."""


def run_campaign(
    campaign: Campaign[Any], directory: Path, run: Run, progress: Progress, watch: CoreWatch | None = None
) -> Run:
    """Measure into `directory`, which must not contain a run; `run` is the state before the first launch.

    With a `watch`, each launch's record has the distance of two cores, and the run a warning if it has changed.

    If the measurement ends early, the samples so far are kept, the run is marked incomplete, and then the error is
    raised.
    """
    if directory.exists() and any(directory.iterdir()):
        raise WrongUse(f"{directory} is not empty; a run needs an empty directory")
    stopped_by: BaseException | None = None
    try:
        # An interrupt may end a launch, but not the recording of its samples.
        with interrupts_held() as hold:
            session = Session(campaign, directory, run, hold, watch)
            session.prepare()
            try:
                session.measure(progress)
            except (BarewireError, KeyboardInterrupt) as error:
                stopped_by = error
            result = session.finish(stopped_by)
    except KeyboardInterrupt as interrupt:
        stopped_by = stopped_by or interrupt
    if stopped_by is not None:
        raise stopped_by
    if session.corrupt_messages:
        raise MeasurementFailed(f"{session.corrupt_messages} messages arrived with wrong contents")
    return result


class Session(Generic[OrderT]):
    """A run in progress."""

    def __init__(
        self, campaign: Campaign[OrderT], directory: Path, run: Run, hold: Hold, watch: CoreWatch | None = None
    ) -> None:
        """Start without measurements; `hold` delivers interrupts during launches."""
        self.campaign, self.directory, self.run, self._hold, self._watch = campaign, directory, run, hold, watch
        self.launches: list[Launch] = []
        self.frames: list[pl.DataFrame] = []
        self.corrupt_messages = 0
        self.stop_reason: Stop = "incomplete"
        self._launched: set[str] = set()
        self._medians: defaultdict[Key, list[float]] = defaultdict(list)
        self._round_number = 0
        rule = campaign.stopping_rule
        self._planner = (
            None
            if rule.refinement is None
            else SizePlanner(rule.refinement, rule.launches_min, rule.launches_max, rule.precision, rule.confidence)
        )

    def prepare(self) -> None:
        """Write the run to disk before its first launch, so that nothing measured is lost."""
        write_run(self.directory, self.run)
        try:
            (self.directory / LAUNCHES_DIRECTORY).mkdir(exist_ok=True)
        except OSError as error:
            raise MeasurementFailed(f"cannot write {self.directory}: {error.strerror}") from error

    def measure(self, progress: Progress) -> None:
        """Run all rounds."""
        stopping_rule = self.campaign.stopping_rule
        started = time.monotonic()
        for round_number, planned in enumerate(self.campaign.rounds()):
            self._round_number = round_number
            orders = planned if self._planner is None else self._planner.assign(planned)
            if not orders:
                self.stop_reason = "converged"
                return
            for done, order in enumerate(orders):
                self._check_first_round(done, len(orders), time.monotonic() - started)
                total = stopping_rule.launches_min * len(orders)
                with self._hold.released():
                    progress(len(self.launches), max(total, len(self.launches) + 1), order.label)
                self._launch(order)
            enough = round_number + 1 >= stopping_rule.launches_min
            if enough and self._planner is None and self._all_precise():
                self.stop_reason = "converged"
                return
            if (enough or self._planner is not None) and time.monotonic() - started > stopping_rule.budget_s:
                break
        self.stop_reason = "budget"

    def _all_precise(self) -> bool:
        rule = self.campaign.stopping_rule
        return all(is_precise(medians, rule.precision, rule.confidence) for medians in self._medians.values())

    def _check_first_round(self, done: int, launches: int, elapsed_s: float) -> None:
        """Raise WrongUse if the first round of a refined run exceeds the budget: its sizes would not be comparable."""
        budget_s = self.campaign.stopping_rule.budget_s
        if self._planner is not None and self._round_number == 0 and done and elapsed_s > budget_s:
            needed_s = math.ceil(elapsed_s / done * launches)
            raise WrongUse(
                f"the budget of {budget_s:g} s is too small for one round: {done} of its {launches} launches took "
                f"{elapsed_s:.1f} s; a round needs about --budget {needed_s}, and several are needed"
            )

    def finish(self, stopped_by: BaseException | None) -> Run:
        """Make the series, write everything, and delete the launches' files, which the samples now include."""
        frame = pl.concat(self.frames) if self.frames else pl.DataFrame(schema=SAMPLE_SCHEMA)
        series = tuple(self.with_stop_reason(series) for series in self.campaign.series(frame))
        self.run = replace(
            self.run,
            complete=stopped_by is None,
            stopped_by=None if stopped_by is None else reason_of(stopped_by),
            launches=tuple(self.launches),
            series=series,
        )
        if self._planner is not None:
            self.run = replace(self.run, warnings=(*self.run.warnings, *self._planner.warnings()))
        warning = None if self._watch is None else self._watch.warning()
        if warning is not None:
            self.run = replace(self.run, warnings=(*self.run.warnings, warning))
        self.run = self.campaign.conclude(self.run, frame)
        # A reader may be about to recover what it takes for a run that was killed.
        with exclusive(self.directory):
            write_run(self.directory, self.run, frame)
            for file in sorted((self.directory / LAUNCHES_DIRECTORY).iterdir()):
                file.unlink()
            (self.directory / LAUNCHES_DIRECTORY).rmdir()
        return self.run

    def with_stop_reason(self, series: Series) -> Series:
        """Return the series with why it ended: it is precise, the budget was spent, or the run was interrupted."""
        if self.stop_reason == "incomplete":
            return replace(series, stop="incomplete")
        # If every sample of every launch was lost, there is no median.
        rule = self.campaign.stopping_rule
        precise = bool(series.launch_medians) and is_precise(series.launch_medians, rule.precision, rule.confidence)
        return replace(series, stop="converged" if precise else "budget")

    def _launch(self, order: OrderT) -> None:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        file = self.directory / LAUNCHES_DIRECTORY / launch_file_name(order.number, order.test, order.subject_name)
        error: BaseException | None = None
        distances: list[float | None] = []
        try:
            with self._hold.released():
                if self._watch is None:
                    self.campaign.launch(order, file)
                else:
                    distances = self._watch.around(lambda: self._start(order, file))
        except (BarewireError, KeyboardInterrupt) as exception:
            error = exception
        if isinstance(error, WrongUse) and order.label in self._launched:
            # A launch that was valid in previous rounds is not wrong use: something has changed since.
            error = MeasurementFailed(str(error))
        self._launched.add(order.label)
        if file.exists():
            records = self.campaign.read(order, file)
        else:
            records = LaunchRecords(pl.DataFrame(schema=SAMPLE_SCHEMA))
        if error is None and not records.end and records.samples.is_empty():
            error = MeasurementFailed(
                f"{order.label} ended without an error and without results: was it really started?"
            )
        self._record(order, started, records, error, distances)
        continues = self.campaign.stopping_rule.despite_failures and isinstance(error, MeasurementFailed)
        if error is not None and not continues:
            raise error

    def _start(self, order: OrderT, file: Path) -> None:
        # A launch that is repeated leaves nothing of the first time.
        file.unlink(missing_ok=True)
        self.campaign.launch(order, file)

    def _record(
        self,
        order: OrderT,
        started: str,
        records: LaunchRecords,
        error: BaseException | None,
        distances: Sequence[float | None],
    ) -> None:
        self.frames.append(records.samples)
        self.corrupt_messages += records.corrupt_messages
        complete = error is None and bool(records.end.get("complete"))
        details: dict[str, Any] = {
            "start": records.start,
            "end": records.end,
            "corrupt_messages": records.corrupt_messages,
        }
        if distances:
            details["core_distance_ns"] = list(distances)
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
                round=self._round_number,
                details=details,
            )
        )
        for series in self.campaign.series(records.samples):
            if series.median is not None:
                self._medians[series_key(series)].append(series.median)
                if self._planner is not None:
                    self._planner.record(self._round_number, series)


def new_run(
    *,
    command: Sequence[str],
    seed: int,
    parameters: dict[str, Any],
    environment: dict[str, Any],
    lab: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> Run:
    """Return a new run before its first launch."""
    now = datetime.now(UTC)
    return Run(
        id=now.strftime("%Y%m%dT%H%M%S") + f"-{random.SystemRandom().getrandbits(16):04x}",
        created=now.isoformat(timespec="seconds"),
        # Arguments that are no text, such as a file's name in another encoding, have escapes, which can be printed.
        command=tuple(word.encode(errors="backslashreplace").decode() for word in command),
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
    """Return the name of a launch's file; `parse_launch_file_name` reads it."""
    return f"{number:04d}-{test}-{subject.replace('+', '~').replace('/', '+')}.jsonl"


def parse_launch_file_name(name: str) -> tuple[int, str, str] | None:
    """Return number, test and subject of a launch's file; None for any other name."""
    match = re.fullmatch(r"(\d{4,})-([a-z]+)-([\w.+~=:-]+)\.jsonl", name, re.ASCII)
    return None if match is None else (int(match[1]), match[2], match[3].replace("+", "/").replace("~", "+"))


def reason_of(error: BaseException) -> str:
    """Return why a run ended early, for its record."""
    return "interrupt" if isinstance(error, KeyboardInterrupt) else str(error)
