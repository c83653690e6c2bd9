# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tests across the layers share: the command of this checkout, and a look at what is left in the kernel."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
import stalls

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec, openvswitch
from barewire.mpi.leftovers import JOB_MARK
from barewire.topology import Network

ROOT = Path(__file__).resolve().parents[1]
BAREWIRE = str(ROOT / "bin" / "barewire")
PROBE = str(ROOT / "target" / "release" / "barewire-probe")

# What is started here shall be ended by a hang-up, also under nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Open MPI 4.1 gives each daemon's ranks two seconds to end when one has failed; ours end at once.
os.environ.setdefault("OMPI_MCA_odls_base_sigkill_timeout", "0")
# What is built of mpi/, also by commands, is built without a warning.
os.environ.setdefault("CFLAGS", "-O2 -Werror")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(stalls.RunAgain())
    forked.prepare()


# The files that take longest, which begin first: none shall run alone at the end.
LONGEST = (
    *("provider", "udp", "mpi_suite", "mpi", "bench", "mpi_kernels", "report_browser", "profile", "sdn", "mpi_command"),
    *("run", "cluster", "endpoint", "lab_network", "plain_mpirun", "sdn_experiment", "cluster_check", "lab_user"),
    *("documented_commands",),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def barewire(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run the command of this checkout to its end."""
    return forked.run(arguments, **{"timeout": 170} | options)


def bench_json(*arguments: str) -> dict[str, Any]:
    """Run `barewire bench … --json` and read the document."""
    done = barewire("bench", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stand_up(topology: str | Network, link: LinkSpec | None = None, **options: bool) -> Lab:
    """A lab, or a loud skip where this machine allows none."""
    try:
        return Lab.up(topology, link, **options)
    except MachineCannot as error:
        pytest.skip(f"no lab on this machine: {error}")


def openflow_target(lab: Lab, switch: str) -> str:
    """Where a switch accepts OpenFlow, as ovs-ofctl wants it."""
    return f"unix:{openvswitch.directory_of(lab.directory)}/{switch}.mgmt"


# Has every name at which an endpoint of this interface could listen for its local peers, as text and as octets; at
# every other one it listens.
TAKE_NAMES = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
mac, held = bytes.fromhex(sys.argv[1].replace(":", "")), []
for sap in range(0, 256, 2):
    address = mac + bytes([sap])
    for name in (address, address.hex().encode()):
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        held[-1].bind(b"\\0barewire-endpoint/" + name)
        if sap % 4:
            held[-1].listen()
print("taken", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def names_taken(lab: Lab, *hosts: str) -> Iterator[None]:
    """Another user, who has no right at all, holds the names of all service access points of these hosts."""
    with contextlib.ExitStack() as until_then:
        for host in hosts:
            command = [sys.executable, "-c", TAKE_NAMES, lab.host(host).mac]
            process = lab.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            until_then.callback(process.communicate)
            assert process.stdout is not None and process.stdout.readline() == "taken\n"
        yield


def processes_with(marker: str) -> list[str]:
    """The processes that have `marker` in their environment, by number."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and process.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                if marker.encode() in (process / "environ").read_bytes():
                    found.append(process.name)
    return found


def jobs_left_over() -> set[str]:
    """Processes of jobs that this test process started; another one's are at work at the same time."""
    return set(processes_with(f"{JOB_MARK}=")) & set(processes_with(os.environ["XDG_RUNTIME_DIR"]))


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def comes_to_the_limit(limit_bit_s: float, measure: Callable[[], float]) -> None:
    """One of ten must be at the limit: other work holds up frames, or the counter, which then sees a burst."""
    shares: list[float] = []
    while len(shares) < 10 and not any(0.9 < share < 1.03 for share in shares):
        shares.append(measure() / limit_bit_s)
    print("measured / limit =", shares)
    assert any(0.9 < share < 1.03 for share in shares)


@pytest.fixture(scope="session")
def lab_allowed() -> None:
    """For tests of commands that make labs: a loud skip where this machine allows none."""
    stand_up("pair").down()


@pytest.fixture
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives a test's labs a directory of their own, which marks their processes, and fails if one of these stays.

    A lab's namespaces, links and bridges are gone with its last process.
    """
    directory = tmp_path_factory.mktemp("runtime")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield
    assert eventually(lambda: processes_with(str(directory)) == []), "processes of a lab were left behind"


@pytest.fixture
def site() -> Iterator[Any]:
    """Two hosts, a broker in the first, and users."""
    from broker_site import standing_site

    with standing_site() as site:
        yield site
