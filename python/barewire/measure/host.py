# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run that characterises this machine: launches of `barewire-host`, one test each, shuffled by seed in rounds."""

import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from barewire.errors import BarewireError, MeasurementFailed, WrongUse
from barewire.lab import Lab
from barewire.measure.environment import describe_machine
from barewire.measure.host_records import SUBJECT, read_host_records
from barewire.measure.launch import end_process, raise_failure
from barewire.measure.programs import HOST, find_program
from barewire.measure.runner import LAUNCHES_DIRECTORY, launch_file_name, reason_of
from barewire.results import SAMPLE_SCHEMA, Launch, Run, series_from_samples, write_run

HOST_TESTS = ("memory", "syscall", "wakeup", "file", "send")
LAUNCHES_MAX = 1000


@dataclass(frozen=True)
class HostPlan:
    """What to launch how often; `seconds` is for each subject at each size of one launch."""

    tests: tuple[str, ...]
    launches: int
    seconds: float
    seed: int
    largest_block_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        unknown = [test for test in self.tests if test not in HOST_TESTS]
        if unknown or not self.tests:
            raise WrongUse(f"'{','.join(unknown)}' is no test of a host; choose from {', '.join(HOST_TESTS)}")
        if not 1 <= self.launches <= LAUNCHES_MAX:
            raise WrongUse(f"--launches is 1 to {LAUNCHES_MAX}, not {self.launches}")
        if not 0 < self.seconds <= 60:
            raise WrongUse(f"--seconds is above 0 and at most 60, not {self.seconds}")


def measure_host(
    plan: HostPlan,
    directory: Path,
    *,
    command: list[str],
    lab: Lab | None,
    warnings: tuple[str, ...] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
) -> Run:
    """Measure `plan` into `directory`, which must not hold a run yet; the run, which is also on disk.

    `send` is measured from the first host of `lab`, and left out without one. Whatever ends the measurement early,
    the samples so far are kept and the run is marked incomplete: then the error is raised once that is on disk.
    """
    if directory.exists() and any(directory.iterdir()):
        raise WrongUse(f"{directory} is not empty; a run needs a directory of its own")
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        warnings = (*warnings, "there is one core: waking across cores was not measured")
    run = _new_run(plan, command, warnings)
    write_run(directory, run)
    launches: list[Launch] = []
    frames: list[pl.DataFrame] = []
    error: BaseException | None = None
    files = directory / LAUNCHES_DIRECTORY
    try:
        files.mkdir(exist_ok=True)
        orders = _orders(plan, with_send=lab is not None)
        for number, test, seed in orders:
            progress(number, len(orders), test)
            file = files / launch_file_name(number, test, SUBJECT)
            started = datetime.now(UTC).isoformat(timespec="milliseconds")
            try:
                _launch(plan, test, seed, cpus, directory, lab, file)
            except (BarewireError, KeyboardInterrupt) as raised:
                error = raised
            _keep(number, test, started, file, error, launches, frames)
            if error is not None:
                break
    except OSError as raised:
        error = MeasurementFailed(f"cannot write {raised.filename or directory}: {raised.strerror}")
    except KeyboardInterrupt as raised:
        error = raised
    run = _finish(run, directory, launches, frames, error)
    if error is not None:
        raise error
    return run


def _orders(plan: HostPlan, *, with_send: bool) -> Sequence[tuple[int, str, int]]:
    """Number, test and seed of each launch: rounds of all tests, each in an order of its own."""
    generator = random.Random(plan.seed)
    orders: list[tuple[int, str, int]] = []
    for _ in range(plan.launches):
        tests = [test for test in plan.tests if with_send or test != "send"]
        generator.shuffle(tests)
        orders += [(len(orders) + place, test, generator.getrandbits(32)) for place, test in enumerate(tests)]
    return orders


def _launch(
    plan: HostPlan, test: str, seed: int, cpus: Sequence[int], directory: Path, lab: Lab | None, file: Path
) -> None:
    command = [find_program(HOST), test, "--seconds", str(plan.seconds), "--seed", str(seed)]
    if test == "memory" and plan.largest_block_bytes is not None:
        command += ["--largest-block", str(plan.largest_block_bytes)]
    if test == "file":
        command += ["--directory", str(directory)]
    with file.open("w") as samples, tempfile.TemporaryFile("w+") as errors:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": samples, "stderr": errors}
        if test == "send":
            assert lab is not None
            host = lab.hosts[0]
            process = lab.popen(host.name, [*command, "--interface", host.interface], **streams)
        else:
            other = ["--other-cpu", str(cpus[1])] if len(cpus) > 1 else []
            process = subprocess.Popen([*command, "--cpu", str(cpus[0]), *other], **streams)
        try:
            process.wait()
        finally:
            if process.poll() is None:
                end_process(process)
        raise_failure(process.returncode, errors)


def _keep(
    number: int,
    test: str,
    started: str,
    file: Path,
    error: BaseException | None,
    launches: list[Launch],
    frames: list[pl.DataFrame],
) -> None:
    if not file.exists():
        return
    records = read_host_records(file, number)
    frames.append(records.samples)
    complete = error is None and bool(records.end.get("complete"))
    told = None if error is None else reason_of(error)
    details = {"start": records.start, "end": records.end}
    launches.append(Launch(number, SUBJECT, test, complete, told, started, details))


def _finish(
    run: Run, directory: Path, launches: list[Launch], frames: list[pl.DataFrame], error: BaseException | None
) -> Run:
    frame = pl.concat(frames) if frames else pl.DataFrame(schema=SAMPLE_SCHEMA)
    series = tuple(series_from_samples(frame))
    if error is not None:
        series = tuple(replace(one, stop="incomplete") for one in series)
    stopped_by = None if error is None else reason_of(error)
    run = replace(run, complete=error is None, stopped_by=stopped_by, launches=tuple(launches), series=series)
    write_run(directory, run, frame)
    files = directory / LAUNCHES_DIRECTORY
    for file in sorted(files.glob("*.jsonl")):
        file.unlink()
    if files.exists():
        files.rmdir()
    return run


def _new_run(plan: HostPlan, command: list[str], warnings: tuple[str, ...]) -> Run:
    now = datetime.now(UTC)
    parameters = {
        "kind": "host",
        "tests": list(plan.tests),
        "launches": plan.launches,
        "seconds": plan.seconds,
        "largest_block_bytes": plan.largest_block_bytes,
    }
    return Run(
        id=now.strftime("%Y%m%dT%H%M%S") + f"-{random.SystemRandom().getrandbits(16):04x}",
        created=now.isoformat(timespec="seconds"),
        command=tuple(command),
        seed=plan.seed,
        complete=False,
        stopped_by=None,
        parameters=parameters,
        environment=describe_machine(),
        lab=None,
        launches=(),
        series=(),
        warnings=warnings,
    )
