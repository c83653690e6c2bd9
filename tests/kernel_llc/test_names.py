# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Linux kernel's LLC station, which knows nothing of names, is found on the segment without one."""

import json
from collections.abc import Iterator

import pytest
from conftest import PROBE

from barewire.lab import Lab
from kernel_llc.conftest import Boot
from kernel_llc.guest import Guest


@pytest.fixture(scope="module")
def guest(boot: Boot) -> Iterator[Guest]:
    with boot() as guest:
        yield guest


def test_a_kernels_station_is_listed_without_a_name(lab: Lab, guest: Guest) -> None:
    command = [PROBE, "hosts", "--interface", guest.interface, "--json"]
    done = lab.run("h1", command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    this, kernel = found["hosts"]
    assert this["name"] == "h1" and this["is_this_host"]
    assert (kernel["name"], kernel["mac"], kernel["interface"]) == (None, guest.mac.hex(":"), guest.interface)
    assert kernel["round_trip_ns"] > 1000 and sum(found["ignored"].values()) == 0
