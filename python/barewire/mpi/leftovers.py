# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What jobs leave behind: processes that outlive their launcher, and shared memory that outlives its process.

Such processes are known by a mark in their environment that no other process has. The shared memory is that of
libfabric's provider `shm`, which MPICH and Intel MPI take within a host: a rank that is killed leaves its file there,
and a later process that has its number dies of it (libfabric 2.3, a segmentation fault).
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

JOB_MARK = "BAREWIRE_JOB"
# What is killed is gone when the kernel has torn down its memory; what was forked meanwhile is found in the next round.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05
_SHARED_MEMORY = Path("/dev/shm")
# Number of the process, domain, endpoint; whatever it adds is the same process's.
_OF_PROCESS = re.compile(r"(\d+):\d+:")


def end_marked(mark: str) -> None:
    """Kill every process of this machine that has `mark` (NAME=VALUE) in its environment, and wait until none is left.

    A process is held by its handle before its environment is read: so no other one can have taken its number.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while _kill_all(mark.encode()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def remove_orphaned_memory(since_ns: int, folder: Path = _SHARED_MEMORY) -> None:
    """Remove this user's files of provider `shm` that were made since then (ns since 1970) by a process that is gone.

    Older ones are not this job's; they stay.
    """
    # Tidying ends no job: what may not be listed or removed stays, or was removed by another job of this user.
    files = list[Path]()
    with suppress(OSError):
        files = list(folder.iterdir())
    for file in files:
        name = _OF_PROCESS.match(file.name)
        if name is None or Path("/proc", name[1]).exists():
            continue
        with suppress(OSError):
            state = file.lstat()
            if state.st_uid == os.geteuid() and state.st_ctime_ns >= since_ns:
                file.unlink()


def _kill_all(mark: bytes) -> bool:
    """Whether there was any."""
    found = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # Gone meanwhile, or another user's.
        try:
            with _held(int(entry.name)) as handle:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    found = True
        except OSError:
            continue
    return found


@contextmanager
def _held(pid: int) -> Iterator[int]:
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)
