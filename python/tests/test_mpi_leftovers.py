# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared memory that killed ranks leave behind is removed, and nothing else; so are processes of a hanging job."""

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barewire.mpi import start
from barewire.mpi.leftovers import remove_orphaned_memory
from barewire.mpi.libraries import Family


def _gone() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_only_recent_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead, before = _gone(), time.time_ns() - 10**9
    orphans = {f"{dead}:0:0", f"{dead}:1:0:12345:2"}
    kept = {f"{os.getpid()}:0:0", f"{dead}", f"x{dead}:0:0", "mpich_shar_tmp123"}
    for name in orphans | kept:
        (tmp_path / name).touch()

    remove_orphaned_memory(time.time_ns() + 10**12, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == orphans | kept, "what is older is another job's"
    remove_orphaned_memory(before, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == kept


def test_a_machine_without_the_folder_is_no_error(tmp_path: Path) -> None:
    remove_orphaned_memory(0, tmp_path / "none")


class _Hanging:
    """A job whose launcher ignores SIGTERM and has started a process in a session of its own."""

    library = SimpleNamespace(family=Family.OPEN_MPI)

    def __init__(self, started: Path, mark: str = "") -> None:
        self.started, self.mark = started, mark

    def with_mark(self, mark: str) -> "_Hanging":
        return _Hanging(self.started, mark)

    def environment(self) -> dict[str, str]:
        return dict([self.mark.split("=")])

    def command(self, _: object) -> list[str]:
        return ["sh", "-c", f"trap '' TERM; setsid sleep 300 & echo $! >{self.started}; sleep 300"]


@pytest.mark.parametrize("kind", ["watched", "limited"])
def test_processes_that_outlive_a_hanging_launcher_are_killed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_END_TIMEOUT_S", 0.1)
    job: Any = _Hanging(tmp_path / "started")
    if kind == "watched":
        with (tmp_path / "output").open("w") as output:
            code = start.run_watched(job, None, output, tmp_path / "records", 0.5)
    else:
        code = start.run_limited(job, None, 0.5, stdin=subprocess.DEVNULL)
    assert code is None
    assert not Path("/proc", (tmp_path / "started").read_text().strip(), "exe").exists(), "none runs, or is a zombie"
