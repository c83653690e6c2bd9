# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Waiting for a process's end takes as long as the process, and no longer than the limit, however large that is."""

import subprocess
import time

import pytest

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
