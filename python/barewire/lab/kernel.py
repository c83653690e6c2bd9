# SPDX-License-Identifier: Apache-2.0 OR MIT
"""System calls that Python 3.11 lacks, and processes identified by more than their number."""

import ctypes
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWNET = 0x4000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 12, 13, 21

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Process:
    """A process by number and start time (clock ticks since boot); the number alone may have been reused."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Identify a running process; ProcessLookupError if there is none."""
        start_ticks = _start_ticks(pid)
        if start_ticks is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, start_ticks)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return _start_ticks(self.pid) == self.start_ticks

    def kill(self, timeout_s: float) -> bool:
        """Kill this very process and wait for its end; False if it has not ended within the time."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            # The handle pins the process that has the number now; only then is comparing start times free of races.
            if not self.alive:
                return True
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            readable, _, _ = select.select([handle], [], [], timeout_s)
            return bool(readable)
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def enter_network(pid: int) -> None:
    """Join the network namespace of a process whose number cannot have been reused."""
    handle = os.pidfd_open(pid)
    try:
        _check(_libc.setns(handle, CLONE_NEWNET), "setns")
    finally:
        os.close(handle)


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2) without data."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    _check(result, f"mount {kind or source} on {target}")


def effective_capabilities() -> int:
    """Return this process's effective capabilities as a bit mask."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field, the command, is in parentheses and may itself contain blanks and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _check(result: int, operation: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
