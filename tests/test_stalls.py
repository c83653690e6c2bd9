# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A failed test runs again if everything stood still meanwhile, and only then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Fails the first time; `STAND_STILL` is what it does before.
CASE = """
import os, pathlib, signal, subprocess, time

def test_first_fails_then_passes(tmp_path_factory):
    STAND_STILL
    first = pathlib.Path(__file__).with_suffix(".ran")
    if not first.exists():
        first.touch()
        assert False, "the first time"
    SECOND
"""
# The shell waits until its parent is stopped.
STOPPED = """subprocess.Popen(
        ["sh", "-c", "until grep -q '^State:.T' /proc/$PPID/status; do sleep 0.05; done; sleep 1.5; kill -CONT $PPID"]
    ); os.kill(os.getpid(), signal.SIGSTOP)"""
SLEEPING = "time.sleep(1.5)"


@pytest.mark.parametrize(
    ("stand_still", "second", "code", "says"),
    [
        (STOPPED, "pass", 0, True),
        pytest.param(STOPPED, "assert False", 1, True, marks=pytest.mark.matrix),
        pytest.param(STOPPED, "import pytest; pytest.skip('now')", 1, False, marks=pytest.mark.matrix),
        (SLEEPING, "pass", 1, False),
    ],
    ids=["passes", "fails again", "is skipped", "no stall"],
)
def test_a_failure_is_repeated_only_after_a_stall(
    stand_still: str, second: str, code: int, says: bool, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(
        "import stalls\n\n\ndef pytest_configure(config):\n    config.pluginmanager.register(stalls.RunAgain())\n"
    )
    (tmp_path / "test_case.py").write_text(CASE.replace("STAND_STILL", stand_still).replace("SECOND", second))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parent}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    # Other plugins take longer than all else here.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=environment
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("ran again, since the machine stood still" in done.stdout) is says, done.stdout
    assert "the first time" in done.stdout
