# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A frame takes its time on a lab's link under Debian's kernel: by the clock, and with a delay by netem."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from barewire.guests.debian import CannotBuild
from barewire.guests.image import Image
from debian_kernel.guest import check, run
from debian_kernel.image import build

# Half a minute in an emulated processor: `make wire` runs them, `make test` does not.
pytestmark = pytest.mark.matrix

# Slow enough that an emulated processor's own time matters little.
RATE_MBIT_S = 2
WIRE_NS = 1438 * 8 * 1000 / RATE_MBIT_S
DELAY_US = 3000
INSIDE = Path(__file__).with_name("inside.py")
UNPRIVILEGED = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp"


@pytest.fixture(scope="module")
def image() -> Image:
    try:
        check()
        return build()
    except CannotBuild as reason:
        pytest.skip(f"no guest to test against: {reason}")


@pytest.fixture(scope="module")
def measured(image: Image, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Everything is measured in one guest: starting it takes longest."""
    python = f"env PYTHONPATH={ROOT / 'python'} {sys.executable} {shlex.quote(str(INSIDE))}"
    shaped = f"{RATE_MBIT_S},0"
    program = f"{python} 0,0 {shaped} {RATE_MBIT_S},{DELAY_US}; {UNPRIVILEGED} {python} {shaped}"
    said = run(image, program, tmp_path_factory.mktemp("guest"))
    print(said)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return dict(zip(("unshaped", "root", "root, delay", "user"), lines, strict=True))


@pytest.mark.parametrize(
    ("who", "wire", "delay_us"), [("root", "clock", 0), ("root, delay", "netem", DELAY_US), ("user", "netem", 0)]
)
def test_a_frame_takes_its_time(measured: dict[str, dict[str, Any]], who: str, wire: str, delay_us: int) -> None:
    """Each round trip takes at least two frames' time, and the best one little more than that and an unshaped one."""
    assert measured[who]["wire"] == wire
    least_ns = 2 * (WIRE_NS + 1000 * delay_us)
    # An emulated machine is late by up to 7 % of this, whatever the wire is made of.
    assert least_ns <= measured[who]["least_ns"] <= 1.1 * (least_ns + measured["unshaped"]["median_ns"])


def test_who_cannot_use_the_clock_is_told_why(measured: dict[str, dict[str, Any]]) -> None:
    assert measured["root"]["notes"] == []
    (note,) = measured["user"]["notes"]
    assert "needs root" in note and "timers" in note
