# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared memory that killed ranks leave behind is removed, and nothing else."""

import os
import subprocess
import time
from pathlib import Path

from barewire.mpi.leftovers import remove_orphaned_memory


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
