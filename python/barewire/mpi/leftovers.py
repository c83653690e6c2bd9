# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Removes what jobs leave behind: processes that outlive their launcher, and orphaned shared memory.

A mark in their environment identifies the processes. The shared memory belongs to libfabric's provider `shm`, which
MPICH and Intel MPI use within a host: a killed rank leaves its file there, and a later process with the same process
number crashes on it (libfabric 2.3, a segmentation fault).
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

JOB_MARK = "BAREWIRE_JOB"
# Covers the teardown of a killed process's memory; processes forked meanwhile are found in the next scan.
_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.05
_SHARED_MEMORY = Path("/dev/shm")
# Process number, domain, endpoint; further fields belong to the same process.
_PROCESS_FILE = re.compile(r"(\d+):\d+:")


def end_marked(mark: str) -> None:
    """Kill every process of this machine that has `mark` (NAME=VALUE) in its environment, and wait until none is left.

    The process handle is opened before the environment is read, so that the number cannot have been reused.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while _kill_all(mark.encode()) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)


def remove_orphaned_memory(since_ns: int, folder: Path = _SHARED_MEMORY) -> None:
    """Remove this user's files of provider `shm` created since then (ns since 1970) whose process has ended.

    Older files belong to other jobs and stay.
    """
    # Clean-up must not fail a job. A file may be inaccessible, or already removed by another job of this user.
    files = list[Path]()
    with suppress(OSError):
        files = list(folder.iterdir())
    for file in files:
        name = _PROCESS_FILE.match(file.name)
        if name is None or Path("/proc", name[1]).exists():
            continue
        with suppress(OSError):
            state = file.lstat()
            if state.st_uid == os.geteuid() and state.st_ctime_ns >= since_ns:
                file.unlink()


def _kill_all(mark: bytes) -> bool:
    """Return whether any process had the mark."""
    is_found = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # The process has ended, or belongs to another user.
        try:
            with _process_handle(int(entry.name)) as handle:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    is_found = True
        except OSError:
            continue
    return is_found


@contextmanager
def _process_handle(pid: int) -> Iterator[int]:
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)
