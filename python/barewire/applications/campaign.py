# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Launches programs alternately over both fabrics, in one lab for each site, and records the launches."""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barewire.applications.application import Application, CheckFailed, Outcome
from barewire.applications.busy import busy_cores
from barewire.applications.inputs import put_inputs
from barewire.applications.sites import Site
from barewire.errors import MeasurementFailed, WrongUse, finite_above_0
from barewire.lab import Lab
from barewire.mpi import FabricOptions, library_of_program, start
from barewire.mpi.placement import LOCAL_HOST
from barewire.mpi.prepare import prepare

# Replaces the fabric where inputs are created and the problem is solved by one rank.
ONE_RANK = "one rank"
_ONE_THREAD = ("OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
_LINES_SHOWN = 12
_PREPARE_LIMIT_S = 120.0
# After this many failures at a site a program is not launched there again.
_FAILURES_MAX = 2


@dataclass(frozen=True)
class Skipped:
    """A program that is not installed, and how to install it."""

    application: str
    reason: str


@dataclass(frozen=True)
class Launch:
    """One launch: its figures by name, or an error. Round 0 is the warm-up."""

    site: str
    application: str
    fabric: str
    round: int
    wall_s: float
    figures: dict[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Plan:
    """Programs, sites, and the number of launches."""

    applications: tuple[Application, ...]
    sites: tuple[Site, ...]
    launches: int = 7
    seed: int = 1
    # Number of busy processes on each core.
    busy: int = 0
    # Longer launches count as hung.
    limit_s: float = 120.0

    def __post_init__(self) -> None:
        """Reject invalid values."""
        if self.launches < 1:
            raise WrongUse(f"--launches must be at least 1, not {self.launches}")
        if self.busy < 0:
            raise WrongUse(f"--busy must be a number of processes per core, 0 or more, not {self.busy}")
        finite_above_0("--limit", self.limit_s)


def find_programs(applications: Iterable[Application]) -> tuple[list[Application], list[Skipped]]:
    """Divide applications into those that are installed and those that must be skipped."""
    installed: list[Application] = []
    skipped: list[Skipped] = []
    for application in applications:
        missing = [program for program in application.programs if shutil.which(program) is None]
        if missing:
            fix = f"apt install {' '.join(application.packages)}"
            skipped.append(Skipped(application.name, f"no {', '.join(missing)}: {fix}"))
            continue
        try:
            library_of_program(application.command.split()[0], None, os.environ)
        except WrongUse as error:
            skipped.append(Skipped(application.name, f"{error}: apt install {' '.join(application.packages)}"))
            continue
        installed.append(application)
    return installed, skipped


class Campaign:
    """All launches of a plan, inside a scratch folder."""

    def __init__(self, plan: Plan, folder: Path, report: Callable[[str], None] = lambda line: None) -> None:
        """Create a campaign; `report` receives a line about each launch."""
        self.plan, self.folder, self._report = plan, folder, report
        self.launches: list[Launch] = []
        self._serial: dict[tuple[str, int], Outcome] = {}
        # Why a program's inputs for a number of ranks could not be made; sites of as many ranks share them.
        self._unprepared: dict[tuple[str, int], str] = {}

    def run(self) -> list[Launch]:
        """Launch everything; failures are recorded, not raised."""
        for site in self.plan.sites:
            for application in self.plan.applications:
                self._prepare(site, application)
            with site.running() as lab, busy_cores(self.plan.busy):
                for number in range(self.plan.launches + 1):
                    self._round(site, lab, number)
        return self.launches

    def _round(self, site: Site, lab: Lab | None, number: int) -> None:
        """Launch each program over each fabric once, in an order drawn from the seed."""
        orders = [(application, fabric) for application in self.plan.applications for fabric in site.fabrics]
        random.Random(f"{self.plan.seed} {site.name} {number}").shuffle(orders)
        for application, fabric in orders:
            failed = [past for past in self._launches_of(site, application) if past.error is not None]
            if len(failed) >= _FAILURES_MAX or any(past.fabric == ONE_RANK for past in failed):
                continue
            launch = self._launch(site, lab, application, fabric, number)
            self.launches.append(launch)
            outcome = launch.error or ", ".join(f"{name} {value:g}" for name, value in launch.figures.items())
            progress = "warm-up" if number == 0 else f"{number}/{self.plan.launches}"
            self._report(f"{site.name} {progress} {application.name} {fabric}: {outcome}")

    def _launches_of(self, site: Site, application: Application) -> list[Launch]:
        return [
            launch for launch in self.launches if (launch.site, launch.application) == (site.name, application.name)
        ]

    def _launch(self, site: Site, lab: Lab | None, application: Application, fabric: str, number: int) -> Launch:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        started = time.monotonic()
        try:
            outcome = self._execute(
                application, folder, site.ranks, lab, site.requested(fabric), site.shares(lab), self.plan.limit_s
            )
            figures = application.judge(outcome, self._serial.get((application.name, site.ranks)))
            return Launch(site.name, application.name, fabric, number, outcome.wall_s, figures)
        except MeasurementFailed as error:
            return Launch(site.name, application.name, fabric, number, time.monotonic() - started, error=_reason(error))
        finally:
            shutil.rmtree(folder)

    def _prepare(self, site: Site, application: Application) -> None:
        """Create the inputs once, and solve the problem with one rank if a check needs that; a failure is recorded."""
        folder, key = self._inputs(application, site.ranks), (application.name, site.ranks)
        started = time.monotonic()
        if not folder.exists():
            try:
                put_inputs(application, folder, ranks=site.ranks, processes=site.ranks)
                for line in application.prepare:
                    _run_here(line, folder, application.assignments)
                if application.needs_serial:
                    self._solve_serially(application, site.ranks)
            except MeasurementFailed as error:
                self._unprepared[key] = _reason(error)
        if (reason := self._unprepared.get(key)) is not None:
            elapsed_s = time.monotonic() - started
            self.launches.append(Launch(site.name, application.name, ONE_RANK, 0, elapsed_s, error=reason))
            self._report(f"{application.name} with one rank: {reason}")

    def _solve_serially(self, application: Application, ranks: int) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        limit_s = max(_PREPARE_LIMIT_S, self.plan.limit_s)
        try:
            outcome = self._execute(application, folder, ranks, None, FabricOptions("shm"), [(LOCAL_HOST, 1)], limit_s)
        finally:
            shutil.rmtree(folder)
        application.judge(outcome, outcome)
        self._serial[application.name, ranks] = outcome
        self._report(f"{application.name} with one rank: {outcome.wall_s:.1f} s")

    def _inputs(self, application: Application, ranks: int) -> Path:
        return self.folder / f"{application.name}-{ranks}"

    def _execute(
        self,
        application: Application,
        folder: Path,
        ranks: int,
        lab: Lab | None,
        requested: FabricOptions,
        shares: Sequence[tuple[str, int]],
        limit_s: float,
    ) -> Outcome:
        """Launch once in a separate folder; MeasurementFailed if that hangs or ends with a code other than 0."""
        shutil.copytree(self._inputs(application, ranks), folder, dirs_exist_ok=True)
        processes = sum(count for _, count in shares)
        if processes != ranks:
            put_inputs(application, folder, ranks=ranks, processes=processes)
        command = [*application.command.split(), *(application.parallel if processes > 1 else ())]
        library, _ = library_of_program(command[0], None, os.environ)
        # All hosts of a lab see this folder; launchers forward only the environment variables that they are given.
        program = ["env", f"--chdir={folder}", *_ONE_THREAD, *application.assignments, *command]
        job = prepare(library, requested, shares, program, lab, pinned=True)
        with tempfile.TemporaryFile("w+", errors="replace") as output_file:
            started = time.monotonic()
            # Ends also ranks that outlive their launcher, which would disturb the next launch.
            code = start.run_limited(
                job, lab, limit_s, stdin=subprocess.DEVNULL, stdout=output_file, stderr=subprocess.STDOUT
            )
            wall_s = time.monotonic() - started
            output_file.seek(0)
            output = output_file.read()
        if code != 0:
            outcome = f"hangs: no end after {limit_s:g} s" if code is None else f"ended with code {code}"
            raise MeasurementFailed(f"{outcome}. Last output:\n{_last_lines(output)}")
        if application.report is not None:
            try:
                output = (folder / application.report).read_text(errors="replace")
            except OSError as error:
                raise CheckFailed(f"it wrote no {application.report}: {error.strerror}") from error
        return Outcome(output, folder, wall_s)


def _run_here(line: str, folder: Path, assignments: Sequence[str]) -> None:
    try:
        completed = subprocess.run(
            ["env", *_ONE_THREAD, *assignments, "sh", "-c", line],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_PREPARE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise MeasurementFailed(f"{line} hangs: no end after {_PREPARE_LIMIT_S:g} s") from None
    if completed.returncode != 0:
        last_lines = _last_lines(completed.stdout + completed.stderr)
        raise MeasurementFailed(f"{line} ended with code {completed.returncode}:\n{last_lines}")


def _last_lines(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "\n".join(f"  {line[:200]}" for line in lines[-_LINES_SHOWN:]) or "  nothing"


def _reason(error: MeasurementFailed) -> str:
    return f"WRONG RESULT: {error}" if isinstance(error, CheckFailed) else str(error)
