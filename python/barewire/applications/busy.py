# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Processes that compete with ranks for each core. As a script, one such process: busy.py CORE.

They are killed by their handles, and die with their parent.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_PR_SET_PDEATHSIG = 1


@contextmanager
def busy_cores(each: int) -> Iterator[None]:
    """Run `each` busy processes on each core of this process during the block."""
    with ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            for _ in range(each):
                stack.enter_context(_spinning(core))
        yield


@contextmanager
def _spinning(core: int) -> Iterator[None]:
    command = [sys.executable, "-I", "-S", __file__, str(core), str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _spin(core: int, parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Interrupts go to the measuring process, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, {core})
    # The parent may have ended before the line above.
    if os.getppid() == parent:
        while True:
            pass


if __name__ == "__main__":
    _spin(int(sys.argv[1]), int(sys.argv[2]))
