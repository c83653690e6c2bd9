# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tests across the layers share: the command of this checkout, and a look at what is left in the kernel."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec

ROOT = Path(__file__).resolve().parents[1]
BAREWIRE = str(ROOT / "bin" / "barewire")
PROBE = str(ROOT / "target" / "release" / "barewire-probe")


def barewire(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run the command of this checkout to its end."""
    return subprocess.run([BAREWIRE, *arguments], capture_output=True, text=True, timeout=170, check=False, **options)


def bench_json(*arguments: str) -> dict[str, Any]:
    """Run `barewire bench … --json` and read the document."""
    done = barewire("bench", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stand_up(topology: str, link: LinkSpec | None = None) -> Lab:
    """A lab, or a loud skip where this machine allows none."""
    try:
        return Lab.up(topology, link)
    except MachineCannot as error:
        pytest.skip(f"no lab on this machine: {error}")


def network_namespaces() -> set[str]:
    """The network namespaces that any process is in."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                found.add(str((process / "ns" / "net").readlink()))
            except OSError:
                continue
    return found


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test after which there are more network namespaces than before."""
    before = network_namespaces()
    yield
    assert eventually(lambda: network_namespaces() <= before), "network namespaces were left behind"
