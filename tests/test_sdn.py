# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller on real Open vSwitch: a fat-tree of 20 switches and 16 hosts, as an operator starts and ends it."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, PROBE, barewire, eventually, openflow_target, stand_up
from mpi_libraries import library, needs, program

from barewire.lab import Lab, LinkSpec, openvswitch
from barewire.sdn.api.client import Client
from barewire.topology import Port

LINKS, SWITCHES = 32, 20
RATE_BIT_S = 25_000_000
ATTEMPTS = 3
# Longest round trip beyond the median after a cable is pulled: 8 to 72 ms on an idle machine. Without labels until
# the cable is back.
SILENCE_MS = 300
STRATEGIES = ("--strategy", "default=ecmp", "--strategy", "mpi=ecmp")

ECHO = """
import socket, threading
server = socket.create_server(("0.0.0.0", 5000), backlog=64)
print("ready", flush=True)
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

# Each connection carries a pattern there and back; prints how many came back whole.
CONNECT = """
import socket, sys
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
whole = 0
for number in range(count):
    with socket.create_connection((address, 5000), timeout=10) as connection:
        pattern = bytes(number * i % 251 for i in range(size))
        connection.sendall(pattern)
        back = b""
        while len(back) < size:
            data = connection.recv(65536)
            if not data:
                break
            back += data
        whole += back == pattern
print(whole)
"""

# Numbered datagrams, one a millisecond; the receiver prints how many came, twice came, and the longest silence in ms.
SEND_DATAGRAMS = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind(("0.0.0.0", 6001))
end = time.monotonic() + float(sys.argv[2])
number = first = int(sys.argv[3])
while time.monotonic() < end:
    sender.sendto(number.to_bytes(4, "big") + bytes(60), (sys.argv[1], 6000))
    number += 1
    time.sleep(0.001)
print(number - first)
"""
RECEIVE_DATAGRAMS = """
import json, socket, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
SO_RCVBUFFORCE = 33
try:
    # A receiver that waits for a core must not lose what the network has brought: 212 KB hold 0.3 s of it.
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
except PermissionError:
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
receiver.bind(("0.0.0.0", 6000))
print("ready", flush=True)
seen, twice, longest, last = set(), 0, 0.0, None
while True:
    data = receiver.recv(100)
    now = time.monotonic()
    receiver.settimeout(20)
    number = int.from_bytes(data[:4], "big")
    if number == 0xFFFFFFFF:
        break
    if not number:
        continue
    twice += number in seen
    seen.add(number)
    longest, last = max(longest, now - (last or now)), now
print(json.dumps({"came": len(seen), "twice": twice, "silence_ms": longest * 1e3}))
"""
END_DATAGRAMS = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind(("0.0.0.0", 6001))
for _ in range(3):
    sender.sendto(b"\\xff" * 4, (sys.argv[1], 6000))
"""


class Site:
    """A lab with a controller process."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.api = f"unix:{folder}/api.sock"
        self.token = folder / "token"
        self.process: subprocess.Popen[str] | None = None
        self.log = folder / "log"
        # Lines of earlier controllers in the log.
        self.logged = 0

    def start(self, *options: str) -> None:
        place = ("--lab", self.lab.id, "--api", self.api, "--token", str(self.token))
        self.logged = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        with self.log.open("a") as log:
            command = [BAREWIRE, "sdn", "start", "--json", *place, "--rate", "25mbit", *options]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)

    def end(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    @property
    def client(self) -> Client:
        return Client(self.api, self.token)

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.client.get("status")
        except Exception:
            return {}
        return found

    def stands(self) -> bool:
        return eventually(lambda: self.status().get("links") == LINKS, 60)

    def flow(self, source: str, destination: str, protocol: str) -> dict[str, Any]:
        (found,) = [
            one
            for one in self.flows()
            if (one["source"], one["destination"], one["protocol"]) == (source, destination, protocol)
        ]
        return found

    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("flows")["flows"]
        return found

    def has_udp(self) -> bool:
        return any(one["protocol"] == "udp" for one in self.flows())

    def events(self, kind: str) -> list[str]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line["text"] for line in lines if line["event"] == kind]

    def listens(self) -> float | None:
        """When the controller that was started last began to listen; None if it does not yet."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        mine = lines[self.logged :]
        return next((line["time_s"] for line in mine if line["event"] == "ready"), None)

    def python(self, host: str, program: str, *arguments: object, patience_s: float = 60) -> str:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = self.lab.run(host, command, capture_output=True, text=True, timeout=patience_s + 60)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def address(self, host: str) -> str:
        return self.lab.host(host).address

    @contextlib.contextmanager
    def running(self, host: str, *command: str) -> Iterator["subprocess.Popen[str]"]:
        process = self.lab.popen(host, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One lab for all tests here, with a controller that each may restart."""
    with stand_up("fat-tree:4", LinkSpec(RATE_BIT_S)) as lab:
        made = Site(lab, tmp_path_factory.mktemp("sdn"))
        made.start(*STRATEGIES)
        assert made.stands(), made.log.read_text()
        yield made
        assert made.end() == 0, made.log.read_text()
        assert "Traceback" not in made.log.read_text()


def test_all_switches_and_links_are_found_as_they_were_made(site: Site) -> None:
    network = site.lab.network
    assert network is not None
    status = site.status()
    assert status["switches"] == status["connected"] == SWITCHES
    found = {(link["from"], link["to"]) for link in site.client.get("links")["links"]}
    made = {
        (str(port), str(peer))
        for port, peer in network.peers.items()
        if {port.node, peer.node} <= set(network.switches)
    }
    assert found == made


def test_tcp_goes_through_the_network_in_flows_of_both_directions(site: Site) -> None:
    """First packets take the default path. On a busy machine copies may be lost; then a short flow is not placed."""

    def paths() -> list[list[str]]:
        return [one["path"] for one in site.flows() if one["protocol"] == "tcp"]

    with site.running("h16", sys.executable, "-c", ECHO) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        for attempt in range(ATTEMPTS):
            before = len(paths())
            for host in ("h1", "h2", "h15"):
                assert site.python(host, CONNECT, site.address("h16"), 5, 200_000) == "5\n"
            if eventually(lambda before=before: len(paths()) == before + 2 * 15):
                break
            print(f"attempt {attempt}: {len(paths()) - before} flows")
        else:
            raise AssertionError("flows were not placed each time")
    assert {len(path) for path in paths()} == {1, 5}, "h15 is on the same switch"
    where = {host["name"]: host["port"] for host in site.client.get("hosts")["hosts"]}
    network = site.lab.network
    assert network is not None and where["h16"] == str(network.attachment("h16"))


def test_barewires_llc_goes_through_the_network_as_mpi(site: Site) -> None:
    """A connection of LLC type 2, with length frames and EtherType 0x8870 both, verified by its own pattern."""
    peer = ("--peer", "h9", "--interface", "eth0")
    with site.running("h9", PROBE, "station", "echo", "--interface", "eth0", "--no-announce"):
        time.sleep(0.5)
        done = site.lab.run(
            "h1", [PROBE, "station", "connect", *peer, "--bytes", "100000"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    there, back = site.flow("h1", "h9", "llc"), site.flow("h9", "h1", "llc")
    assert there["profile"] == back["profile"] == "mpi" and there["known_by"] == "signature"
    assert len(there["path"]) == len(back["path"]) == 5


@contextlib.contextmanager
def streaming(site: Site, seconds: float = 4) -> Iterator[Callable[[], dict[str, float]]]:
    """Datagrams from h3 to h14 for some seconds; the function ends them and says what came."""
    with site.running("h14", sys.executable, "-c", RECEIVE_DATAGRAMS) as receiver:
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        assert eventually(lambda: site.python("h3", SEND_DATAGRAMS, site.address("h14"), 0.001, 0) and site.has_udp())
        command = (sys.executable, "-c", SEND_DATAGRAMS, site.address("h14"), str(seconds), "1")
        with site.running("h3", *command) as sender:

            def end() -> dict[str, float]:
                sent, _ = sender.communicate(timeout=seconds + 60)
                site.python("h3", END_DATAGRAMS, site.address("h14"))
                assert receiver.stdout is not None
                seen: dict[str, float] = json.loads(receiver.stdout.readline())
                return seen | {"sent": int(sent)}

            yield end


def loses_nothing(site: Site, during: Callable[[], None]) -> None:
    """Let something happen to a stream; it loses and doubles nothing.

    A machine whose cores are all wanted elsewhere drops packets by itself, so one attempt of some must be clean. None
    may double a packet.
    """
    for attempt in range(ATTEMPTS):
        with streaming(site) as end:
            during()
            seen = end()
        assert seen["twice"] == 0, seen
        if seen["came"] == seen["sent"]:
            return
        print(f"attempt {attempt}: {seen}")
    raise AssertionError("packets were lost each time")


def test_a_flow_that_moves_loses_and_doubles_nothing(site: Site) -> None:
    """Re-placed by another strategy five times while it runs."""
    paths = set()

    def move() -> None:
        for strategy in ("stp", "dmodk", "ecmp", "stp", "dmodk"):
            site.client.set_strategy("default", strategy)
            time.sleep(0.4)
            paths.add(tuple(site.flow("h3", "h14", "udp")["path"]))

    loses_nothing(site, move)
    assert len(paths) > 1


def test_a_link_that_fails_is_gone_round(site: Site) -> None:
    network = site.lab.network
    assert network is not None
    with streaming(site) as end:
        time.sleep(0.5)
        path = site.flow("h3", "h14", "udp")["path"]
        node, number = path[1].split(":")
        leaves = Port(node, int(number))
        arrives = network.peers[leaves]
        site.lab.set_cable(str(leaves), str(arrives), up=False)
        seen = end()
    after = site.flow("h3", "h14", "udp")["path"]
    site.lab.set_cable(str(leaves), str(arrives), up=True)
    assert after != path and str(leaves) not in after
    # How long it took is measured by tools/bench_sdn.py, on a machine that has nothing else to do.
    assert seen["came"] > 0.5 * seen["sent"] and seen["twice"] == 0, seen
    assert site.stands(), "and the link is used again"


def test_traffic_goes_on_while_the_controller_restarts(site: Site) -> None:
    def restart() -> None:
        before = site.flow("h3", "h14", "udp")
        assert site.end() == 0
        time.sleep(0.5)
        site.start(*STRATEGIES)
        assert site.stands()
        assert eventually(site.has_udp, 20), site.events("rules taken over")
        after = site.flow("h3", "h14", "udp")
        assert after["path"] == before["path"] and after["why"] == "found in the switches"

    loses_nothing(site, restart)


# One connection after another, each with an echo; prints the slowest, and how many there were.
RECONNECT = """
import json, socket, sys, time
address, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
slowest, count = 0.0, 0
while time.monotonic() < end:
    began = time.monotonic()
    with socket.create_connection((address, 5000), timeout=20) as connection:
        connection.sendall(bytes(1000))
        assert connection.recv(1)
    slowest, count = max(slowest, time.monotonic() - began), count + 1
    time.sleep(0.2)
print(json.dumps([slowest, count]))
"""
SILENCE_MAX_S = BACK_MAX_S = 1.0


def survives(site: Site, seconds: float) -> dict[str, float]:
    """Kill the controller for some time, much longer than its rules' time-outs, under traffic; then start it again.

    A placed flow goes on, new flows begin, also between hosts that have never met, and the new controller has all
    switches, links and hosts, and the flow.
    """
    assert site.end() == 0
    site.start(*STRATEGIES, "--idle", "2", "--hard", "3")
    assert site.stands()
    echo = (sys.executable, "-c", ECHO)
    with site.running("h16", *echo) as first, site.running("h12", *echo) as second, streaming(site, seconds) as end:
        for server in (first, second):
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
        assert site.python("h1", CONNECT, site.address("h16"), 1, 1000) == "1\n"
        assert site.process is not None
        site.process.kill()
        site.process.wait()
        met = json.loads(site.python("h1", RECONNECT, site.address("h16"), seconds / 2, patience_s=seconds))
        unmet = json.loads(site.python("h7", RECONNECT, site.address("h12"), seconds / 2, patience_s=seconds))
        seen = end()
    site.start(*STRATEGIES)
    assert eventually(lambda: site.listens() is not None, 60), site.log.read_text()
    assert site.stands() and eventually(lambda: site.status().get("hosts", 0) >= 16, 20)
    back_s = time.time() - (site.listens() or 0.0)
    assert met[1] > 1 and unmet[1] > 1
    slowest_s = max(met[0], unmet[0])
    return seen | {"slowest_s": slowest_s, "back_s": back_s, "lost": seen["sent"] - seen["came"]}


def test_the_network_runs_on_without_its_controller(site: Site) -> None:
    """For twice its rules' hard time-outs. A busy machine may be slow by itself: one attempt of some must be fast."""
    for _ in range(ATTEMPTS):
        seen = survives(site, 6)
        print(seen)
        if max(seen["silence_ms"] / 1e3, seen["slowest_s"]) <= SILENCE_MAX_S and seen["back_s"] <= BACK_MAX_S:
            return
    raise AssertionError(f"too slow each time: {seen}")


@pytest.mark.matrix
def test_the_network_runs_on_for_ten_minutes_without_its_controller(site: Site) -> None:
    seen = survives(site, 600)
    print(seen)
    assert max(seen["silence_ms"] / 1e3, seen["slowest_s"]) <= SILENCE_MAX_S and seen["back_s"] <= BACK_MAX_S, seen


def test_a_switch_that_restarts_carries_its_flows_again(site: Site) -> None:
    """A busy machine takes two seconds to restart it."""
    with streaming(site, 6) as end:
        middle = site.flow("h3", "h14", "udp")["path"][2].split(":")[0]
        site.lab.set_switch(middle, up=False)
        time.sleep(1)
        site.lab.set_switch(middle, up=True)
        time.sleep(2)
        seen = end()
    assert seen["came"] > 0.5 * seen["sent"] and seen["twice"] == 0, seen
    assert site.stands()
    assert eventually(lambda: site.status()["connected"] == SWITCHES, 20)


def test_a_full_table_of_a_real_switch_leaves_the_network_up(site: Site) -> None:
    limit = ("--", "--id=@full", "create", "Flow_Table", "flow_limit=12", "overflow_policy=refuse")
    _vsctl(site, "s18", *limit, "--", "set", "bridge", "s18", "flow_tables:0=@full")
    try:
        with site.running("h11", sys.executable, "-c", ECHO) as server:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            for host in ("h5", "h6"):
                assert site.python(host, CONNECT, site.address("h11"), 12, 2000) == "12\n"
        assert any("s18" in text for text in site.events("table full")), site.log.read_text()[-3000:]
    finally:
        _vsctl(site, "s18", "--", "clear", "bridge", "s18", "flow_tables")


def test_the_command_line_shows_announces_and_withdraws(site: Site) -> None:
    place = ("--sdn", site.api, "--sdn-token", str(site.token))
    document = json.dumps({"name": "test", "profile": "mpi", "hosts": ["h1", "h5"], "lease_s": 60})
    made = barewire("sdn", "announce", "-", *place, input=document)
    assert made.returncode == 0, made.stderr
    shown = barewire("sdn", "status", "--json", *place)
    assert [job["name"] for job in json.loads(shown.stdout)["jobs"]] == ["test"]
    assert "of 20 switches connected" in barewire("sdn", "status", *place).stdout
    assert barewire("sdn", "flows", "--json", *place).returncode == 0
    assert barewire("sdn", "withdraw", made.stdout.strip(), *place).returncode == 0
    again = barewire("sdn", "withdraw", made.stdout.strip(), *place)
    assert again.returncode == 1 and "there is no job" in again.stderr
    wrong = barewire("sdn", "announce", "-", *place, input='{"profile": "mpi", "hosts": ["nobody"]}')
    assert wrong.returncode == 2 and "unknown hosts: nobody" in wrong.stderr
    other = site.folder / "other"
    other.write_text("another-token-of-sixteen")
    other.chmod(0o600)
    refused = barewire("sdn", "status", "--sdn", site.api, "--sdn-token", str(other))
    assert refused.returncode == 2 and "Authorization: Bearer" in refused.stderr


def test_an_mpi_job_announces_itself_while_it_runs(site: Site) -> None:
    library("mpich")
    place = ("--lab", site.lab.id, "--hosts", "h1:1,h5:2", "--sdn", site.api, "--sdn-token", str(site.token))
    command = (
        BAREWIRE,
        "run",
        "-n",
        "3",
        *place,
        "--fabric",
        "tcp",
        "--library",
        "mpich",
        "--",
        "sh",
        "-c",
        "sleep 2; hostname",
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert eventually(lambda: bool(site.client.get("jobs")["jobs"]), 20), running.communicate()
        (job,) = site.client.get("jobs")["jobs"]
        output, errors = running.communicate(timeout=60)
    assert (job["profile"], job["ranks"], job["name"]) == ("mpi", 3, "sh")
    assert job["traffic"] == [{"protocol": "tcp", "ports": []}]
    assert running.returncode == 0 and sorted(output.split()) == ["h1", "h5", "h5"], errors
    assert site.client.get("jobs")["jobs"] == [], "withdrawn at the end"


def _sprays(site: Site, size: int, milliseconds: int) -> dict[str, float]:
    """Exchange messages of this size with labels for a time; meanwhile the controller ends and a cable is pulled."""
    network = site.lab.network
    assert network is not None
    place = ("--lab", site.lab.id, "--hosts", "h1,h16", "--sdn", site.api, "--sdn-token", str(site.token))
    job = (
        "--fabric",
        "barewire",
        "--library",
        "openmpi-5",
        "--",
        program("openmpi-5", "silence"),
        str(milliseconds),
        str(size),
    )
    command = (BAREWIRE, "run", "-n", "2", *place, *job)
    uplinks = [port for port in network.ports["s13"] if network.peers[port].node in network.switches]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:

        def rates() -> list[int]:
            sent = {load["port"]: load["sent_byte_s"] for load in site.client.get("loads")["loads"]}
            return [sent.get(str(uplink), 0) for uplink in uplinks]

        # Short messages stay on one path; long ones use all.
        def is_under_way() -> bool:
            return max(rates()) > 5_000 if size < 1000 else min(rates()) > 50_000

        eventually(lambda: running.poll() is not None or is_under_way(), 20)
        offered = site.client.labels("mpi", print)
        busiest = network.peers[uplinks[rates().index(max(rates()))]].node
        assert site.end() == 0
        try:
            site.lab.set_cable("s13", busiest, up=False)
            in_time = running.poll() is None
            output, errors = running.communicate(timeout=60)
        finally:
            site.lab.set_cable("s13", busiest, up=True)
            site.start(*STRATEGIES, "--strategy", "mpi=spray")
            assert site.stands()
    assert running.returncode == 0, errors
    found: dict[str, float] = json.loads(output)
    print(size, found, in_time, offered)
    # On a busy machine the job may have ended before.
    return found if in_time and offered == "3840-3843" else found | {"longest_ms": float("inf")}


@pytest.mark.parametrize("size", [pytest.param(8, marks=pytest.mark.matrix), 50_000])
def test_sprayed_frames_leave_a_pulled_cable_while_no_controller_runs(site: Site, size: int) -> None:
    """Labels need no rule for the job's data, and its senders find out by themselves which of them are dead.

    A machine whose cores are all wanted elsewhere delays frames by itself, so one attempt of some must be quick.
    """
    library("openmpi-5")
    needs("barewire")
    site.client.set_strategy("mpi", "spray")
    for attempt in range(ATTEMPTS):
        assert site.stands() and eventually(lambda: site.status().get("being_installed") == 0, 20)
        found = _sprays(site, size, 5000 * (attempt + 1))
        if found["longest_ms"] < found["median_ms"] + SILENCE_MS:
            break
    else:
        raise AssertionError(f"a dead path was not left in time: {found}")
    assert site.stands()


@pytest.mark.parametrize(("strategy", "paths"), [pytest.param("ecmp", 1, marks=pytest.mark.matrix), ("spray", 2)])
def test_processes_on_the_same_hosts_take_several_paths_only_by_labels(site: Site, strategy: str, paths: int) -> None:
    """Eight pairs of processes on h1 and h16 exchange short messages. OpenFlow does not see their SAPs, so without
    labels all leave h1's switch by one link. With them each connection has a label of its own, taken at random: all of
    one link once in 128 runs, which is why there are attempts.
    """
    library("openmpi-5")
    needs("barewire")
    network = site.lab.network
    assert network is not None
    uplinks = [port for port in network.ports["s13"] if network.peers[port].node in network.switches]
    site.client.set_strategy("mpi", strategy)
    place = ("--lab", site.lab.id, "--hosts", "h1:8,h16:8", "--sdn", site.api, "--sdn-token", str(site.token))
    job = ("--fabric", "barewire", "--library", "openmpi-5", "--", program("openmpi-5", "pairs"), "2500", "8")
    used = 0
    for _ in range(ATTEMPTS):
        assert site.stands() and eventually(lambda: site.status().get("being_installed") == 0, 20)
        before = _sent(site, uplinks)
        done = barewire("run", "-n", "16", *place, *job)
        assert done.returncode == 0 and json.loads(done.stdout)["round_trips"] > 20, (done.stdout, done.stderr)
        sent = [after - then for after, then in zip(_sent(site, uplinks), before, strict=True)]
        print(strategy, done.stdout, sent)
        # Frames before a flow has its rules, probes of links and set-up are the rest.
        used = sum(one > 0.2 * sum(sent) for one in sent)
        if used == paths:
            break
    assert used == paths


def _sent(site: Site, ports: list[Port]) -> list[int]:
    """Bytes that ports of one switch have sent, by its counters."""
    target = openflow_target(site.lab, ports[0].node)
    command = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-ports", target]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
    found = re.findall(r"port +(\d+): rx .*?tx pkts=\d+, bytes=(\d+)", shown, re.DOTALL)
    sent = {int(number): int(size) for number, size in found}
    return [sent[port.number] for port in ports]


def test_a_job_that_the_controller_refuses_does_not_start(site: Site) -> None:
    place = ("--hosts", "localhost", "--sdn", site.api, "--sdn-token", str(site.token))
    done = barewire("run", "-n", "1", *place, "--fabric", "tcp", "--library", "mpich", "--", "hostname")
    assert done.returncode == 2 and f"unknown hosts: {socket.gethostname()}" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--strategy", "mpi=best"), 2, "unknown strategy 'best'; there are: stp"),
        (("--listen", "6653"), 2, "unix:PATH or tcp:ADDRESS:PORT"),
        (("--api", "0.0.0.0:8181"), 2, "means all addresses"),
        (("--policy", "/none"), 2, "cannot read /none"),
        (("--idle", "-1"), 2, "idle_s is -1"),
        (("--listen", "tcp:192.0.2.1:6653"), 3, "cannot listen for switches"),
    ],
)
def test_a_start_that_cannot_be_says_what_to_do(tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    place = ("--token", str(tmp_path / "token"), "--api", f"unix:{tmp_path}/api.sock")
    done = barewire("sdn", "start", *place, *options)
    assert done.returncode == code and said in " ".join(done.stderr.split()), done.stderr


def _vsctl(site: Site, switch: str, *arguments: str) -> None:
    database = f"unix:{openvswitch.database_of(site.lab.directory, switch)}"
    command = ["ovs-vsctl", f"--db={database}", "--no-wait", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
