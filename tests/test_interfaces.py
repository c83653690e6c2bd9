# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MPI by several interfaces at once: long messages go by all that two hosts share; one that fails costs its share."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from conftest import BAREWIRE, barewire, stand_up
from mpi_libraries import needs, program
from second_network import add_second_network, set_second_carrier

from barewire.lab import Lab, LinkSpec

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

LIBRARIES = ["openmpi", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("mpich-5", "openmpi-5"))]
SPREAD = "long messages over up to 2 interfaces"


def all_interfaces() -> dict[str, str]:
    """Return an environment that selects no interface, as the lab would, and no width of tables, as pytest does."""
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"FI_BAREWIRE_INTERFACE": ""}


def run(lab: Lab, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return barewire("run", "--lab", lab.id, "-n", "2", *arguments, env=all_interfaces())


def is_right(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]


@pytest.mark.parametrize("same_switch", [False, True], ids=["another network", "the same switch"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_long_messages_go_by_all_interfaces(name: str, same_switch: bool) -> None:
    """Every byte is checked; nobody selects an interface."""
    needs("barewire")
    with stand_up("star:2") as lab:
        add_second_network(lab, same_switch=same_switch)
        before = _received(lab, "h2")
        done = run(lab, "--library", name, "--explain", "--", program(name, "messages"), "1")
        is_right(done)
        assert SPREAD in done.stderr, done.stderr
        shares = [after - before[name] for name, after in _received(lab, "h2").items()]
        assert min(shares) > max(shares) / 2 > 1 << 20, shares


@pytest.mark.parametrize("name", LIBRARIES[:1])
def test_a_selection_of_interfaces_is_kept(name: str) -> None:
    needs("barewire")
    with stand_up("star:2") as lab:
        add_second_network(lab)
        built = program(name, "messages")
        for chosen, is_spread in (("eth1", False), ("eth1,eth0", True)):
            done = run(lab, "--interface", chosen, "--explain", "--", built, "1")
            is_right(done)
            assert (SPREAD in done.stderr) == is_spread, done.stderr
            assert re.search(
                r"│ interface +│ " + ("eth0, MTU 1500, eth1" if is_spread else "eth1, MTU 1500 "), done.stderr
            )
        for wrong, said in (("eth1,eth1", "1 to 4 names"), ("eth0,eth9", "eth9")):
            done = run(lab, "--interface", wrong, "--", built, "1")
            assert done.returncode != 0 and said in done.stderr, done.stderr
        # No frame is longer than either takes.
        for host in ("h1", "h2"):
            assert lab.run(host, ["ip", "link", "set", "eth1", "mtu", "1200"], check=False).returncode == 0
        done = run(lab, "--interface", "eth0,eth1", "--explain", "--", built, "1")
        is_right(done)
        assert SPREAD in done.stderr, done.stderr


def test_interfaces_of_different_hosts_that_are_not_joined_do_no_harm() -> None:
    """Two of three hosts have a second interface, in one network, with which the third has nothing to do."""
    needs("barewire")
    with stand_up("star:3") as lab:
        add_second_network(lab)
        assert lab.run("h3", ["ip", "link", "delete", "eth1"], check=False).returncode == 0
        done = barewire(
            "run", "--lab", lab.id, "-n", "3", "--", program("openmpi", "messages"), "1", env=all_interfaces()
        )
        is_right(done)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_goes_on_when_a_cable_is_pulled_out(name: str) -> None:
    """Of the second interface and of the first, of either host; and one that passes nothing in one direction only."""
    needs("barewire")
    with stand_up("star:2", LinkSpec(rate_bit_s=1_000_000_000)) as lab:
        add_second_network(lab)

        def pull(pulled: Callable[[bool], None]) -> None:
            pulled(False)
            time.sleep(0.5)
            pulled(True)
            time.sleep(0.5)

        over = lab.directory / "over"
        command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--library", name, "--", program(name, "goes_on")]
        command += ["0", "0", "1", str(over)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=all_interfaces()
        ) as process:
            timer = threading.Timer(100, process.terminate)
            timer.start()
            try:
                assert process.stdout is not None and process.stderr is not None
                line = process.stdout.readline()
                assert "under way" in line, line + process.stderr.read()
                for host in ("h1", "h2"):
                    pull(lambda up, host=host: set_second_carrier(lab, host, up))
                    pull(lambda up, host=host: lab.set_carrier(host, up))
                over.touch()
                output, error = process.communicate()
                assert process.returncode == 0 and '"right": true' in output, output[-1000:] + error[-2000:]
            finally:
                timer.cancel()


def _received(lab: Lab, host: str) -> dict[str, int]:
    """Return the bytes that each interface of a host has received."""
    script = 'cd /sys/class/net; for name in eth*; do echo "$name $(cat $name/statistics/rx_bytes)"; done'
    lines = lab.run(host, ["sh", "-ec", script], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}
