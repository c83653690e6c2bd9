# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Processes of a job that outlive its launcher, known by a mark in their environment that no other process has."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JOB_MARK = "BAREWIRE_JOB"
# What is killed is gone when the kernel has torn down its memory; what was forked meanwhile is found in the next round.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05


def end_marked(mark: str) -> None:
    """Kill every process of this machine that has `mark` (NAME=VALUE) in its environment, and wait until none is left.

    A process is held by its handle before its environment is read: so no other one can have taken its number.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while _kill_all(mark.encode()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


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
