# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The end of child processes."""

import subprocess
from collections.abc import Callable
from typing import Any

from barewire.errors import MeasurementFailed


def end_process(process: "subprocess.Popen[Any]", timeout_s: float = 1.0) -> None:
    """Wait for a process's end, terminate it, kill it: `timeout_s` seconds each. MeasurementFailed if it stays."""
    _end(process, timeout_s, (lambda: None, process.terminate, process.kill))


def terminate(process: "subprocess.Popen[Any]", timeout_s: float) -> None:
    """Terminate a process, and kill it after `timeout_s` seconds. MeasurementFailed if it stays."""
    _end(process, timeout_s, (process.terminate, process.kill))


def _end(process: "subprocess.Popen[Any]", timeout_s: float, ways: tuple[Callable[[], None], ...]) -> None:
    for way in ways:
        way()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            continue
        return
    raise MeasurementFailed(f"process {process.pid} cannot be killed; it may be stuck in a driver")
