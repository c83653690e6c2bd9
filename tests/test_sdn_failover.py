# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A pair of controllers on real Open vSwitch: the leader is killed or stopped under traffic; the other takes over."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, barewire, eventually, stand_up
from test_sdn import END_DATAGRAMS, RECEIVE_DATAGRAMS, SEND_DATAGRAMS
from throwaway_ca import Authority

from barewire.errors import MeasurementFailed
from barewire.lab import Lab, LinkSpec, openvswitch
from barewire.lab.plan import End
from barewire.sdn.api.client import Client
from barewire.sdn.tls import TlsFiles
from barewire.topology import star

RATE_BIT_S = 25_000_000
# After a leader's death: until another one controls all switches again, and the longest silence of a placed flow.
TAKEOVER_S = SILENCE_S = 1.0
# A busy machine is slow by itself: one attempt of some must be fast.
ATTEMPTS = 3
ROUNDS = 10
# Of a socket's other end: process, user, group.
CREDENTIALS = struct.Struct("iII")
PORTS = {"a": 6653, "b": 6654}


class Pair:
    """Controllers a and b of one lab, with their logs."""

    def __init__(
        self, lab: Lab, folder: Path, options: Callable[[str], Sequence[str]], into: Sequence[str] = ()
    ) -> None:
        """`options` returns a controller's own options; `into` is put before its command."""
        self.lab, self.folder, self.options, self.into = lab, folder, options, into
        self.token = folder / "token"
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.urls = {name: f"unix:{folder}/{name}.sock" for name in "ab"}

    def start(self, name: str) -> None:
        command = [BAREWIRE, "sdn", "start", "--json", "--token", str(self.token), "--rate", "25mbit"]
        with self.log(name).open("a") as log:
            process = [*self.into, *command, *self.options(name)]
            self.processes[name] = subprocess.Popen(process, stdout=log, stderr=subprocess.STDOUT, text=True)

    def pid(self, name: str) -> int:
        """The process that listens at a controller's API; the one that was started may be a parent of it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.urls[name].removeprefix("unix:"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        return int(CREDENTIALS.unpack(credentials)[0])

    def connect(self) -> None:
        """Make the switches connect now, where the controllers do not do so themselves."""

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def events(self, name: str, *kinds: str, since_s: float = 0.0) -> list[tuple[float, str]]:
        lines = [json.loads(line) for line in self.log(name).read_text().splitlines()]
        return [(one["time_s"], one["text"]) for one in lines if one["event"] in kinds and one["time_s"] >= since_s]

    def client(self, names: str = "ab") -> Client:
        return Client(",".join(self.urls[name] for name in names), self.token)

    def role(self, name: str) -> str:
        with contextlib.suppress(MeasurementFailed):
            return str(self.client(name).get("pair")["role"])
        return "none"

    def stand(self) -> None:
        """Start both: a leads, b stands by, and both are connected to all switches."""
        self.start("a")
        assert eventually(lambda: self.token.exists() and self.role("a") == "leader", 30), self.log("a").read_text()
        self.start("b")
        assert eventually(lambda: self.role("b") == "standby", 30), self.log("b").read_text()
        self.connect()
        switches = self.lab.network.switches if self.lab.network is not None else ()
        for name in "ab":
            client = self.client(name)
            assert eventually(lambda client=client: self.counts(client) == len(switches), 30)  # type: ignore[misc]
        assert eventually(lambda: self.client().get("status")["links"] == self.links, 30)

    @property
    def links(self) -> int:
        network = self.lab.network
        assert network is not None
        return (
            sum(port.node in network.switches and peer.node in network.switches for port, peer in network.peers.items())
            // 2
        )

    @staticmethod
    def counts(client: Client) -> int:
        return int(client.get("pair")["switches"])

    def end(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is None:
                os.kill(self.pid(name), signal.SIGTERM)
                assert process.wait(20) == 0
            assert "Traceback" not in self.log(name).read_text(), self.log(name).read_text()

    def in_charge_s(self, name: str, since_s: float) -> float:
        """How long after a time a controller controlled all switches, and knew all links and hosts again."""
        network = self.lab.network
        assert network is not None

        def stands() -> bool:
            with contextlib.suppress(MeasurementFailed):
                status = self.client(name + self.other(name)).get("status")
                found = status["connected"], status["links"], status["hosts"]
                return found == (len(network.switches), self.links, len(network.hosts))
            return False

        assert eventually(stands, 30), self.log(name).read_text()
        kinds = ("leader", "switch ready", "links found", "rules taken over")
        return max(at_s for at_s, _ in self.events(name, *kinds, since_s=since_s)) - since_s

    @staticmethod
    def other(name: str) -> str:
        return "b" if name == "a" else "a"

    def flow(self, client: Client, source: str, destination: str) -> dict[str, Any]:
        flows = client.get("flows")["flows"]
        (found,) = [
            one for one in flows if (one["source"], one["destination"], one["protocol"]) == (source, destination, "udp")
        ]
        return dict(found)

    def python(self, host: str, program: str, *arguments: object) -> str:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = self.lab.run(host, command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    @contextlib.contextmanager
    def streaming(self, source: str, destination: str, seconds: float) -> Iterator[Callable[[], dict[str, float]]]:
        """Datagrams, one a millisecond, for some seconds; the function ends them and says what came."""
        address = self.lab.host(destination).address
        receive = [sys.executable, "-c", RECEIVE_DATAGRAMS]
        send = [sys.executable, "-c", SEND_DATAGRAMS, address, str(seconds), "1"]
        receiver = self.lab.popen(destination, receive, stdout=subprocess.PIPE, text=True)
        sender = None
        try:
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            self.python(source, SEND_DATAGRAMS, address, 0.001, 0)
            sender = self.lab.popen(source, send, stdout=subprocess.PIPE, text=True)

            def end() -> dict[str, float]:
                assert sender is not None and receiver.stdout is not None
                sent, _ = sender.communicate(timeout=seconds + 60)
                self.python(source, END_DATAGRAMS, address)
                seen: dict[str, float] = json.loads(receiver.stdout.readline())
                return seen | {"sent": int(sent)}

            yield end
        finally:
            for process in (receiver, sender):
                if process is not None:
                    process.kill()
                    process.communicate()


class TlsPair(Pair):
    """With a switch that connects by TLS; it shows each of `shown` until it is refused, and the last one in the end."""

    shown: Sequence[TlsFiles] = ()

    def connect(self) -> None:
        """Change the controllers' names, so that the switch connects at once."""
        for number, files in enumerate(self.shown, start=1):
            before = self._refused()
            paths = [str(path) for path in (files.key, files.certificate, files.authority)]
            controllers = [f"ssl:127.0.0.{number}:{port}" for port in PORTS.values()]
            _vsctl(self.lab, "s1", "set-ssl", *paths, "--", "set-controller", "s1", *controllers)
            if number < len(self.shown):
                assert eventually(lambda before=before: self._refused() > before, 20)  # type: ignore[misc]

    def _refused(self) -> int:
        """How often both controllers have refused a connection; of the two, the one that did so more rarely."""
        return min(len(self.events(name, "connection refused")) for name in "ab")


def fails_over(
    pair: Pair, leader: str, stop: signal.Signals, ends: tuple[str, str], seconds: float
) -> dict[str, float]:
    """Kill or stop the leader under traffic; say how long it took, and what the stream saw."""
    heir = pair.other(leader)
    job = pair.client().announce({"profile": "hadoop", "hosts": list(ends), "lease_s": 600, "name": "kept"})
    with pair.streaming(*ends, seconds) as end:
        assert eventually(lambda: bool(pair.client().get("flows")["flows"]), 10)
        before = pair.flow(pair.client(), *ends)
        assert before["profile"] == "hadoop"
        time.sleep(0.3)
        then_s = time.time()
        os.kill(pair.pid(leader), stop)
        if stop is signal.SIGKILL:
            pair.processes[leader].wait()
        in_charge_s = pair.in_charge_s(heir, then_s)
        client = pair.client(heir + leader)
        assert client.get("pair")["role"] == "leader"
        assert eventually(lambda: client.get("status")["flows"] >= 1, 20)
        after = pair.flow(client, *ends)
        assert (after["path"], after["profile"]) == (before["path"], "hadoop")
        assert [one["id"] for one in client.get("jobs")["jobs"]] == [job["id"]]
        seen = end()
    client.withdraw(job["id"])
    assert seen["twice"] == 0
    return seen | {"in_charge_s": in_charge_s, "lost": seen["sent"] - seen["came"]}


def comes_back(pair: Pair, leader: str) -> None:
    """Start a former leader again, or let it go on; it stands by."""
    heir = pair.other(leader)
    if pair.processes[leader].poll() is None:
        os.kill(pair.pid(leader), signal.SIGCONT)
        pair.processes[leader].send_signal(signal.SIGCONT)  # in a lab's namespace, a process that stops with it
    else:
        pair.start(leader)
    assert eventually(lambda: pair.role(leader) == "standby", 30), pair.log(leader).read_text()
    assert eventually(lambda: pair.counts(pair.client(leader)) == pair.counts(pair.client(heir)), 30)
    assert pair.role(heir) == "leader", "the one that comes back stands by"


def is_fast(seen: dict[str, float]) -> bool:
    return seen["in_charge_s"] <= TAKEOVER_S and seen["silence_ms"] <= 1e3 * SILENCE_S


def test_over_tls_a_killed_leader_is_replaced_and_a_stopped_one_is_refused(tmp_path: Path) -> None:
    """One switch, with ssl: controllers and certificates of both sides; the controllers run in its namespace."""
    with stand_up(star(2), LinkSpec(RATE_BIT_S)) as lab:
        authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
        far = End("s1", "lo", "00:00:00:00:00:00", 65536)
        hosts = tmp_path / "hosts"
        hosts.write_text("".join(f"{host.name} {host.mac} eth0\n" for host in lab.hosts))
        subprocess.run(lab.command_at(far, ["ip", "link", "set", "lo", "up"]), check=True, timeout=20)
        made = {name: authority.files(name, "127.0.0.1") for name in "ab"}

        def options(name: str) -> list[str]:
            other, files = Pair.other(name), made[name]
            tls = ["--tls-key", files.key, "--tls-certificate", files.certificate, "--tls-ca", files.authority]
            place = ["--listen", f"ssl:0.0.0.0:{PORTS[name]}", "--hosts-file", hosts]
            apis = ["--api", f"unix:{tmp_path}/{name}.sock", "--peer", f"unix:{tmp_path}/{other}.sock"]
            return [*map(str, (*tls, *place)), *apis]

        pair = TlsPair(lab, tmp_path, options, lab.command_at(far, ["env"]))
        # At first by a certificate of another authority, which is said.
        wrong = replace(stranger.files("s1-wrong"), authority=authority.certificate)
        pair.shown = [wrong, authority.files("s1")]
        pair.stand()
        refused = "the authority that signed its certificate is not in --tls-ca"
        assert all(any(refused in text for _, text in pair.events(name, "connection refused")) for name in "ab")
        for stop in (signal.SIGSTOP, signal.SIGKILL):
            for attempt in range(ATTEMPTS):
                leader = next(name for name in "ab" if pair.role(name) == "leader")
                then_s = time.time()
                seen = fails_over(pair, leader, stop, ("h1", "h2"), 2)
                print(stop.name, attempt, seen)
                if stop is signal.SIGSTOP:
                    comes_back(pair, leader)
                    said = [text for _, text in pair.events(leader, "standby", since_s=then_s)]
                    assert any("refuses" in text or "newer generation" in text for text in said), said
                if is_fast(seen):
                    break
                if stop is signal.SIGKILL:
                    comes_back(pair, leader)
            else:
                raise AssertionError(f"too slow each time: {seen}")
        pair.end()


@pytest.mark.matrix
def test_a_leader_that_is_killed_ten_times_under_traffic_stops_no_flow(tmp_path: Path) -> None:
    with stand_up("fat-tree:4", LinkSpec(RATE_BIT_S)) as lab:

        def options(name: str) -> list[str]:
            other = Pair.other(name)
            return ["--lab", lab.id, "--api", f"unix:{tmp_path}/{name}.sock", "--peer", f"unix:{tmp_path}/{other}.sock"]

        pair = Pair(lab, tmp_path, options)
        pair.stand()
        kills = 0
        for number in range(ROUNDS):
            for attempt in range(ATTEMPTS):
                leader = "ab"[kills % 2]
                kills += 1
                seen = fails_over(pair, leader, signal.SIGKILL, ("h3", "h14"), 4)
                comes_back(pair, leader)
                print(number, attempt, seen, flush=True)
                if is_fast(seen):
                    break
            else:
                raise AssertionError(f"too slow each time: {seen}")
        pair.end()
        assert sum(len(pair.events(name, "leader")) for name in "ab") == kills + 1, (
            "no leader was replaced while it ran"
        )


def test_a_pair_that_cannot_be_says_what_to_do(tmp_path: Path) -> None:
    place = ("--token", str(tmp_path / "token"), "--api", f"unix:{tmp_path}/api.sock")
    done = barewire("sdn", "start", *place, "--peer", "https://10.0.0.2:8181")
    assert done.returncode == 2, done.stderr
    assert "needs --tls-key, --tls-certificate and --tls-ca" in " ".join(done.stderr.split())


def _vsctl(lab: Lab, switch: str, *arguments: str) -> None:
    database = f"unix:{openvswitch.database_of(lab.directory, switch)}"
    command = ["ovs-vsctl", f"--db={database}", "--no-wait", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
