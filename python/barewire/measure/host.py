# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run that characterises this machine: launches of `barewire-host`, one per test, shuffled by seed in rounds."""

import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import MeasurementFailed, WrongUse, unknown
from barewire.lab import Lab
from barewire.measure.environment import describe_machine
from barewire.measure.host_records import SUBJECT, read_host_records
from barewire.measure.launch import raise_failure
from barewire.measure.programs import HOST, find_program
from barewire.measure.records import LaunchRecords
from barewire.measure.session import StoppingRule, new_run, run_campaign
from barewire.models.catalogue import Program, names_of_tests
from barewire.processes import end_process
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples
from barewire.stats.confidence import CONFIDENCE

HOST_TESTS = names_of_tests(Program.host)
LAUNCHES_MAX = 1000


@dataclass(frozen=True)
class HostPlan:
    """Tests and number of launches; `seconds` applies to each subject at each size of one launch."""

    tests: tuple[str, ...]
    launches: int
    seconds: float
    seed: int
    largest_block_bytes: int | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        """Reject invalid values."""
        if not self.tests:
            raise WrongUse(f"choose from the tests {', '.join(HOST_TESTS)}")
        for test in self.tests:
            if test not in HOST_TESTS:
                raise unknown("test", test, HOST_TESTS)
        if not 1 <= self.launches <= LAUNCHES_MAX:
            raise WrongUse(f"--launches must be 1 to {LAUNCHES_MAX}, not {self.launches}")
        if not 0 < self.seconds <= 60:
            raise WrongUse(f"--seconds must be above 0 and at most 60, not {self.seconds}")


def measure_host(
    plan: HostPlan,
    directory: Path,
    *,
    command: list[str],
    lab: Lab | None,
    warnings: tuple[str, ...] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> Run:
    """Measure `plan` into `directory`, which must not contain a run; return the run, which is also on disk.

    `send` is measured from the first host of `lab`, and omitted without a lab. If the measurement ends early, the
    samples so far are kept, the run is marked incomplete, and then the error is raised.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        warnings = (*warnings, "only one core: wake-ups and transfers across cores were not measured")
    parameters = {
        "kind": "host",
        "tests": list(plan.tests),
        "launches": plan.launches,
        "seconds": plan.seconds,
        "largest_block_bytes": plan.largest_block_bytes,
        "confidence": plan.confidence,
    }
    environment = describe_machine()
    run = new_run(command=command, seed=plan.seed, parameters=parameters, environment=environment, warnings=warnings)
    return run_campaign(HostCampaign(plan, directory, lab, tuple(cpus)), directory, run, progress)


@dataclass(frozen=True)
class HostOrder:
    """One start of `barewire-host` for one test."""

    number: int
    test: str
    seed: int
    subject_name: str = SUBJECT

    @property
    def label(self) -> str:
        """The test."""
        return self.test


@dataclass(frozen=True)
class HostCampaign:
    """Launches of `barewire-host`; its files are in `directory`."""

    plan: HostPlan
    directory: Path
    lab: Lab | None
    cpus: tuple[int, ...]

    @property
    def stopping_rule(self) -> StoppingRule:
        """A fixed number of rounds."""
        return StoppingRule(self.plan.launches, self.plan.launches)

    def rounds(self) -> Iterator[list[HostOrder]]:
        """Rounds of all tests, each shuffled."""
        generator = random.Random(self.plan.seed)
        number = 0
        for _ in range(self.plan.launches):
            tests = [test for test in self.plan.tests if self.lab is not None or test != "send"]
            generator.shuffle(tests)
            yield [HostOrder(number + offset, test, generator.getrandbits(32)) for offset, test in enumerate(tests)]
            number += len(tests)

    def launch(self, order: HostOrder, records: Path) -> None:
        """Run one test."""
        _launch(self.plan, order.test, order.seed, self.cpus, self.directory, self.lab, records)

    def read(self, order: HostOrder, records: Path) -> LaunchRecords:
        """Read its records."""
        return read_host_records(records, order.number)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Make series; no link limits a host."""
        return series_from_samples(frame)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Return the run unchanged: all derived values are computed by readers."""
        return run


def _launch(
    plan: HostPlan, test: str, seed: int, cpus: Sequence[int], directory: Path, lab: Lab | None, file: Path
) -> None:
    command = [find_program(HOST), test, "--seconds", str(plan.seconds), "--seed", str(seed)]
    if test in ("memory", "load") and plan.largest_block_bytes is not None:
        command += ["--largest-block", str(plan.largest_block_bytes)]
    if test in ("file", "filesystem"):
        command += ["--directory", str(directory)]
    try:
        _run(command, test, cpus, lab, file)
    except OSError as error:
        raise MeasurementFailed(f"cannot write {error.filename or directory}: {error.strerror}") from error


def _run(command: list[str], test: str, cpus: Sequence[int], lab: Lab | None, file: Path) -> None:
    with file.open("w") as samples, tempfile.TemporaryFile("w+") as errors:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": samples, "stderr": errors}
        if test == "send":
            assert lab is not None
            host = lab.hosts[0]
            process = lab.popen(host.name, [*command, "--interface", host.interface], **streams)
        else:
            options = ["--other-cpu", str(cpus[1])] if len(cpus) > 1 else []
            process = subprocess.Popen([*command, "--cpu", str(cpus[0]), *options], **streams)
        try:
            process.wait()
        finally:
            if process.poll() is None:
                end_process(process)
        raise_failure(process.returncode, errors)
