# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The end of child processes."""

import ctypes
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from barewire.errors import MeasurementFailed

_PR_SET_PDEATHSIG = 1
# poll(2) takes milliseconds as a C int.
POLL_MAX_S = 2_000_000.0


def end_with_this_process() -> Callable[[], None]:
    """Return a `preexec_fn` with which a child is terminated when this process ends, however that ends.

    The kernel means the thread that starts the child: let it be the main thread.
    """
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # It may have ended before.
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return prepare


def wait(process: "subprocess.Popen[Any]", limit_s: float | None) -> int | None:
    """Sleep until a process ends and return its code; None after the limit.

    `Popen.wait` with a limit looks every 50 ms whether the process has ended. Without one it would sleep on through an
    interrupt once polars is imported, whose handler lets the kernel restart system calls; poll(2) is never restarted.
    """
    if process.poll() is not None:
        return process.wait()
    handle = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        until = time.monotonic() + (math.inf if limit_s is None else limit_s)
        while not poll.poll(math.ceil(min(max(until - time.monotonic(), 0), POLL_MAX_S) * 1e3)):
            if time.monotonic() >= until:
                return None
        return process.wait()
    finally:
        os.close(handle)


def end_process(process: "subprocess.Popen[Any]", timeout_s: float = 1.0) -> None:
    """Wait for a process's end, terminate it, kill it: `timeout_s` seconds each. MeasurementFailed if it stays."""
    _end(process, timeout_s, (lambda: None, process.terminate, process.kill))


def terminate(process: "subprocess.Popen[Any]", timeout_s: float) -> None:
    """Terminate a process, and kill it after `timeout_s` seconds. MeasurementFailed if it stays."""
    _end(process, timeout_s, (process.terminate, process.kill))


def _end(process: "subprocess.Popen[Any]", timeout_s: float, ways: tuple[Callable[[], None], ...]) -> None:
    for way in ways:
        way()
        if wait(process, timeout_s) is not None:
            return
    raise MeasurementFailed(f"process {process.pid} cannot be killed; it may be stuck in a driver")
