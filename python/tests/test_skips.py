# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A newly skipped test fails the run, unless the machine is allowed to lack something."""

import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "skips.py"
HUGE = "takes a minute and 9 GB of memory: make huge, or BAREWIRE_TEST_HUGE=1"


def compare(tmp_path: Path, pytest_skips: list[str], rust: str = "", **environment: str) -> tuple[int, str]:
    """Return the exit code and the output for skips with these reasons."""
    log, junit = tmp_path / "log", tmp_path / "junit.xml"
    log.write_text(rust)
    cases = "".join(
        f'<testcase classname="tests.test_a" name="test_{place}"><skipped message="{reason}"/></testcase>'
        for place, reason in enumerate(pytest_skips)
    )
    junit.write_text(f'<testsuites><testsuite><testcase classname="c" name="runs"/>{cases}</testsuite></testsuites>')
    settings = {name: value for name, value in os.environ.items() if name != "BAREWIRE_ALLOW_SKIPS"} | environment
    command = [sys.executable, str(TOOL), str(log), str(junit)]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_known_skips_and_fewer_are_fine(tmp_path: Path) -> None:
    assert compare(tmp_path, [HUGE] * 2) == (0, "")
    assert compare(tmp_path, []) == (0, "")


def test_one_more_skip_for_a_known_reason_is_reported(tmp_path: Path) -> None:
    code, output = compare(tmp_path, [HUGE] * 3)
    assert code == 1 and "only 2 may be" in output and "tests.test_a::test_2" in output


def test_a_new_reason_is_reported_in_either_language(tmp_path: Path) -> None:
    code, output = compare(tmp_path, ["tshark is missing"], "SKIPPED raw::frames: they need CAP_NET_RAW: as root\n")
    assert code == 1
    assert "none may be, because 'tshark is missing': tests.test_a::test_0" in output
    assert "because 'they need CAP_NET_RAW: as root': raw::frames" in output.replace("raw::frames, ", "")


def test_a_machine_that_lacks_something_may_allow_skips(tmp_path: Path) -> None:
    skips = ["tshark is missing", "no lab on this machine: nothing\nat all"]
    assert compare(tmp_path, skips, BAREWIRE_ALLOW_SKIPS="tshark.*|no lab.*") == (0, "")
    code, output = compare(tmp_path, skips, BAREWIRE_ALLOW_SKIPS="tshark.*")
    assert code == 1 and "no lab" in output and "tshark" not in output
