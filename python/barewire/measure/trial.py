# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A user's program over two fabrics: after a warm-up of each, launches in rounds of random order."""

import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barewire.lab import Lab
from barewire.mpi.job import Job
from barewire.mpi.profiler import with_profiler
from barewire.mpi.start import run_limited
from barewire.results.profile import RankProfile, read_profiles
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import is_precise

WARM_UP, TIMED, PROFILED = "warm-up", "timed", "profiled"
OUTPUT_FOLDER = "output"

# Longer expected durations are announced to the user.
_LONG_S = 60.0

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TrialPlan:
    """The stopping rule, and the time limit of a launch."""

    launches_min: int
    launches_max: int
    precision: float
    budget_s: float
    limit_s: float | None
    seed: int
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class TrialLaunch:
    """One launch; `code` is None if it exceeded the limit. Times of events that did not happen are None."""

    number: int
    fabric: str
    phase: str
    code: int | None
    wall_s: float
    main_s: float | None
    stdout: str
    stderr: str


@dataclass
class Trial:
    """Launches of one program over two fabrics so far; files go to `directory`."""

    jobs: dict[str, Job]
    lab: Lab | None
    profiler: Path | None
    directory: Path
    plan: TrialPlan
    progress: Progress
    # Receives a sentence for the user.
    notify: Callable[[str], None]
    # Standard input of every launch.
    input: Path = Path(os.devnull)
    launches: list[TrialLaunch] = field(default_factory=list)
    profiles: dict[str, list[RankProfile]] = field(default_factory=dict)

    def run(self) -> None:
        """Warm up, time, profile; stop after the first round with a failed launch."""
        (self.directory / OUTPUT_FOLDER).mkdir()
        order = random.Random(self.plan.seed)
        self._round(WARM_UP, order)
        self._announce_duration()
        started = time.monotonic()
        while not self.failed and not self._has_finished(time.monotonic() - started):
            self._round(TIMED, order)
        if not self.failed and self.profiler is not None:
            self._round(PROFILED, order)

    @property
    def failed(self) -> bool:
        """Whether any launch failed."""
        return any(launch.code != 0 for launch in self.launches)

    def walls(self, fabric: str) -> list[float]:
        """Return the wall times of the timed launches over a fabric, in seconds."""
        return [launch.wall_s for launch in self._timed(fabric)]

    def mains(self, fabric: str) -> list[float]:
        """Return the known times from MPI_Init's end to MPI_Finalize of the same launches, in seconds."""
        return [launch.main_s for launch in self._timed(fabric) if launch.main_s is not None]

    def outputs(self, fabric: str) -> list[str]:
        """Return the standard output of all launches over a fabric, including warm-up and profiled ones."""
        files = [self.directory / launch.stdout for launch in self.launches if launch.fabric == fabric]
        return [file.read_text(errors="replace") for file in files]

    def _announce_duration(self) -> None:
        rounds = self.plan.launches_min + (self.profiler is not None)
        expected_s = sum(launch.wall_s for launch in self.launches) * rounds
        if expected_s > _LONG_S and not self.failed:
            durations = " and ".join(f"{launch.wall_s:.0f} s over {launch.fabric}" for launch in self.launches)
            minutes = round(expected_s / 60)
            expected = "a minute" if minutes < 2 else f"{minutes} minutes"
            self.notify(f"a launch takes {durations}: all of them will take {expected} or more")

    def _timed(self, fabric: str) -> list[TrialLaunch]:
        return [launch for launch in self.launches if launch.fabric == fabric and launch.phase == TIMED]

    def _has_finished(self, elapsed_s: float) -> bool:
        plan, walls = self.plan, [self.walls(fabric) for fabric in self.jobs]
        count = min(map(len, walls))
        if count < plan.launches_min:
            return False
        if count >= plan.launches_max or elapsed_s > plan.budget_s:
            return True
        return all(is_precise(values, plan.precision, plan.confidence) for values in walls)

    def _round(self, phase: str, order: random.Random) -> None:
        fabrics = list(self.jobs)
        order.shuffle(fabrics)
        for fabric in fabrics:
            total = max(len(self.launches) + 1, 2 * (self.plan.launches_min + 2))
            self.progress(len(self.launches), total, f"{phase}, {fabric}")
            self._launch(phase, fabric)

    def _launch(self, phase: str, fabric: str) -> None:
        number = len(self.launches)
        ranks = self.directory / f".ranks-{number}"
        ranks.mkdir()
        job = self.jobs[fabric]
        if self.profiler is not None:
            job = with_profiler(job, self.profiler, ranks, light=phase != PROFILED)
        names = [f"{OUTPUT_FOLDER}/{number:03d}-{fabric}-{phase}.{kind}" for kind in ("out", "err")]
        out_file, err_file = (self.directory / name for name in names)
        try:
            with self.input.open("rb") as given, out_file.open("wb") as out, err_file.open("wb") as err:
                started = time.monotonic()
                code = run_limited(job, self.lab, self.plan.limit_s, stdin=given, stdout=out, stderr=err)
                wall_s = time.monotonic() - started
            profiles = read_profiles(ranks)
        finally:
            # A process that outlives the launch may still write there.
            shutil.rmtree(ranks, ignore_errors=True)
        if phase == PROFILED:
            self.profiles[fabric] = profiles
        self.launches.append(TrialLaunch(number, fabric, phase, code, wall_s, _main_of(profiles, job.ranks), *names))


def _main_of(profiles: Sequence[RankProfile], ranks: int) -> float | None:
    """Return the slowest rank's time between MPI_Init and MPI_Finalize; None unless all ranks reached both."""
    launched = [profile for profile in profiles if not profile.spawned]
    times = [profile.main_s for profile in launched if profile.state == "finalised" and profile.main_s is not None]
    return max(times) if len(times) == ranks else None
