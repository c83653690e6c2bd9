# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A scoreboard's directory: its plan, and a folder with a run for each testbed."""

from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse
from barewire.measure.patterns import TESTBEDS
from barewire.measure.recover import recover_run
from barewire.measure.scoreboard_plan import BoardPlan
from barewire.results import Run
from barewire.results.scoreboard import Scoreboard, scoreboard
from barewire.results.store import RUN_FILE


@dataclass(frozen=True)
class Board:
    """A scoreboard with the runs that it follows from, by testbed."""

    plan: BoardPlan
    runs: dict[str, Run]
    scores: Scoreboard

    @property
    def unmeasured(self) -> list[str]:
        """Testbeds of the plan that have no run."""
        return [one.name for one in self.plan.chosen_testbeds() if one.name not in self.runs]


def read_board(directory: Path) -> Board:
    """Derive the scoreboard from the runs in `directory`; WrongUse if it holds none.

    A testbed that was measured anew, because the first run of it broke off, counts by its complete run; without one
    by the run with the most launches.
    """
    plan = BoardPlan.read(directory)
    runs: dict[str, Run] = {}
    for testbed in TESTBEDS:
        found = [recover_run(folder) for folder in _folders(directory, testbed.name)]
        if found:
            runs[testbed.name] = max(found, key=lambda run: (run.complete, len(run.launches)))
    if not runs:
        raise WrongUse(f"{directory} holds a plan and no run yet: `barewire mpi scoreboard --resume {directory}`")
    parts = ((name, run.series, run.parameters["competitors"]) for name, run in runs.items())
    return Board(plan, runs, scoreboard(parts))


def is_measured(directory: Path, testbed: str) -> bool:
    """Whether there is a complete run of a testbed."""
    return any(recover_run(folder).complete for folder in _folders(directory, testbed))


def directory_for(directory: Path, testbed: str) -> Path:
    """Where the next run of a testbed goes: raw samples of one that broke off stay."""
    before = len(_folders(directory, testbed))
    return directory / (testbed if before == 0 else f"{testbed}.{before + 1}")


def _folders(directory: Path, testbed: str) -> list[Path]:
    candidates = [directory / testbed, *sorted(directory.glob(f"{testbed}.*"))]
    return [folder for folder in candidates if (folder / RUN_FILE).exists()]
