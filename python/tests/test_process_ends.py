# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Waiting for a process's end takes as long as the process, and no longer than the limit, however large that is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barewire import processes
from barewire.processes import wait


@pytest.mark.parametrize("limit_s", [None, 30, 1e12, float("inf")])
def test_the_end_is_waited_for_and_known_afterwards(limit_s: float | None) -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 0.1; exit 3"])
    assert wait(process, limit_s) == 3
    assert wait(process, limit_s) == wait(process, 0) == 3


@pytest.mark.parametrize("limit_s", [0, 0.0004, 0.1])
def test_after_the_limit_the_process_still_runs(limit_s: float) -> None:
    process = subprocess.Popen(["sleep", "60"])
    began = time.monotonic()
    assert wait(process, limit_s) is None
    assert time.monotonic() - began >= limit_s and process.poll() is None
    process.kill()
    assert wait(process, 30) == -9


_WAITING = """
import signal, subprocess
from barewire.processes import wait
# As polars' handler of this signal has it.
signal.siginterrupt(signal.SIGINT, False)
process = subprocess.Popen(["sleep", "60"])
try:
    print("waiting", flush=True)
    wait(process, None)
except KeyboardInterrupt:
    process.kill()
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_wait_without_a_limit_although_system_calls_are_restarted() -> None:
    environment = dict(os.environ) | {"PYTHONPATH": str(Path(processes.__file__).parents[1])}
    command = [sys.executable, "-c", _WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=20)[0] == "interrupted\n"
        finally:
            process.kill()
