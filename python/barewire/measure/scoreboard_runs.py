# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A scoreboard's directory: its plan, and a folder with a run per testbed."""

from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse
from barewire.measure.patterns import TESTBEDS
from barewire.measure.recover import recover_run
from barewire.measure.scoreboard_plan import BoardPlan
from barewire.results.run import Run
from barewire.results.scoreboard import Scoreboard, scoreboard
from barewire.results.store import RUN_FILE


@dataclass(frozen=True)
class Board:
    """A scoreboard and its runs by testbed."""

    plan: BoardPlan
    runs: dict[str, Run]
    scores: Scoreboard

    @property
    def unmeasured(self) -> list[str]:
        """Testbeds of the plan that have no run."""
        return [testbed.name for testbed in self.plan.chosen_testbeds() if testbed.name not in self.runs]


def read_board(directory: Path, confidence: float | None = None) -> Board:
    """Compute the scoreboard from the runs in `directory`; WrongUse if there are none.

    Intervals have this confidence, a share of 1, by default the plan's.
    If a testbed was measured again after an interrupted run, its complete run counts, or else the one with the most
    launches.
    """
    plan = BoardPlan.read(directory)
    runs: dict[str, Run] = {}
    for testbed in TESTBEDS:
        recovered = [recover_run(folder) for folder in _folders(directory, testbed.name)]
        if recovered:
            runs[testbed.name] = max(recovered, key=lambda run: (run.complete, len(run.launches)))
    if not runs:
        raise WrongUse(f"{directory} contains a plan but no run: `barewire mpi scoreboard --resume {directory}`")
    parts = ((name, run.series, run.parameters["competitors"]) for name, run in runs.items())
    return Board(plan, runs, scoreboard(parts, confidence=confidence or plan.confidence))


def is_measured(directory: Path, testbed: str) -> bool:
    """Return whether a testbed has a complete run."""
    return any(recover_run(folder).complete for folder in _folders(directory, testbed))


def directory_for(directory: Path, testbed: str) -> Path:
    """Return the directory of a testbed's next run; raw samples of interrupted ones are kept."""
    before = len(_folders(directory, testbed))
    return directory / (testbed if before == 0 else f"{testbed}.{before + 1}")


def _folders(directory: Path, testbed: str) -> list[Path]:
    candidates = [directory / testbed, *sorted(directory.glob(f"{testbed}.*"))]
    return [folder for folder in candidates if (folder / RUN_FILE).exists()]
