# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The libfabric provider as any program uses it: tests/fi is plain C against libfabric's own headers.

Each case runs in a network namespace of its own: once over the loopback interface, where processes share memory, and
once with its endpoints on the two ends of a veth pair, where all goes by frames.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, stand_up
from mpi_libraries import needs

from barewire.lab import Lab
from barewire.mpi.prepare import BUILT_PROVIDER

SOURCES = ROOT / "tests" / "fi"
# A case has `{"name", name},` in its group's table; peers.c has those that other processes take part in.
CASES = [
    name
    for source in sorted(SOURCES.glob("*.c"))
    if source.name not in ("node.c", "peers.c")
    for name in re.findall(r'\{"(\w+)", \1\},', source.read_text())
]
LOOPBACK = "ip link set lo up"
WIRE = "ip link add va type veth peer name vb; ip link set va up; ip link set vb up"
ENVIRONMENT = {
    "FI_PROVIDER_PATH": str(BUILT_PROVIDER),
    "FI_PROVIDER": "barewire",
    "FI_LOG_LEVEL": "info",
}
# Longer than a message of 32 bits' length, which takes as much memory on each side.
HUGE_BYTES = (4 << 30) + 100_000_001
HUGE = "BAREWIRE_TEST_HUGE"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cases, built as a user builds a program."""
    needs("barewire")
    if shutil.which("gcc") is None or not Path("/usr/include/rdma/fabric.h").is_file():
        pytest.skip("no libfabric headers or compiler: make setup")
    built = tmp_path_factory.mktemp("fi") / "fi"
    flags = ["-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *flags, *map(str, sorted(SOURCES.glob("*.c"))), "-o", str(built), "-lfabric", "-lpthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(built)


def in_a_namespace(links: str, command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a network namespace that has these links and nothing else."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", "--net", *user]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespaces on this machine: see `barewire doctor`")
    return subprocess.run(
        [*alone, "sh", "-ec", f'{links}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | ENVIRONMENT | environment,
        check=False,
    )


def test_every_case_is_run(program: str) -> None:
    """The names that are found in the sources are those that the program has."""
    listed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert listed and sorted(listed) == sorted(CASES)


@pytest.mark.parametrize("links", ["loopback", "wire"])
@pytest.mark.parametrize("name", CASES)
def test_case(program: str, name: str, links: str) -> None:
    """What a case checks is said in its source; it ends with 0 if all of it was right."""
    if links == "loopback":
        done = in_a_namespace(LOOPBACK, [program, name])
    else:
        # Both ends are in one process: who closes first is not answered any more, and gives up after its patience.
        done = in_a_namespace(WIRE, [program, name], WIRE="va,vb", FI_BAREWIRE_PATIENCE="3")
    assert done.returncode == 0 and f"{name}: right" in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]
    assert "fault of our own" not in done.stderr


@pytest.fixture
def lab(nothing_left: None) -> Iterator[Lab]:
    with stand_up("pair") as lab:
        yield lab


def in_lab(lab: Lab, host: str, command: list[str], **environment: str) -> "subprocess.Popen[str]":
    """Start a program in a lab host, where it finds the link by itself."""
    settings = os.environ | ENVIRONMENT | {"FI_BAREWIRE_INTERFACE": "eth0"} | environment
    return lab.popen(host, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings)


def ended_well(process: "subprocess.Popen[str]", seconds: float = 60) -> None:
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0 and ": right" in output, output[-2000:]


@pytest.mark.parametrize("victim", ["h1", "h2"])
def test_a_killed_peer_is_noticed_in_time_and_others_are_undisturbed(program: str, lab: Lab, victim: str) -> None:
    """A peer is killed while it gets long messages: on the same host, and at the other end of the wire."""
    doors = [str(lab.directory / "victim"), str(lab.directory / "other")]
    peers = [in_lab(lab, victim, [program, "serve", door], FI_BAREWIRE_PATIENCE="2") for door in doors]
    ended_well(in_lab(lab, "h1", [program, "a_killed_peer", *doors], FI_BAREWIRE_PATIENCE="2"))
    assert peers[0].wait(timeout=10) == -9
    peers[0].communicate()
    ended_well(peers[1])


def available_bytes() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) * 1024  # type: ignore[index]


@pytest.mark.parametrize("sender", ["h1", "h2"])
def test_a_message_beyond_four_gibibytes(program: str, lab: Lab, sender: str) -> None:
    """Its length needs more than 32 bits; every byte is checked, on one host and over the wire."""
    if HUGE not in os.environ:
        pytest.skip(f"takes a minute and 9 GB of memory: make huge, or {HUGE}=1")
    if available_bytes() < 2 * HUGE_BYTES + (1 << 30):
        pytest.skip(f"needs {2 * HUGE_BYTES + (1 << 30)} bytes of memory, {available_bytes()} are available")
    door = str(lab.directory / "door")
    receiver = in_lab(lab, "h1", [program, "one_message", door, str(HUGE_BYTES), "receive"])
    ended_well(in_lab(lab, sender, [program, "one_message", door, str(HUGE_BYTES), "send"]), seconds=240)
    ended_well(receiver, seconds=60)
