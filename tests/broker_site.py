# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two hosts with brokers, for its tests, and users of them who have other numbers than root and no capability at all.

Their programs are the probe, and a client in Python that was written from the messages' picture, as an oracle for the
codec.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, stand_up

from barewire.lab import Lab

ALICE, BOB, MALLORY = 65534, 65533, 65532
GRANTED, MALFORMED, NOT_ALLOWED, TAKEN, TOO_MANY, NO_INTERFACE = 0, 1, 2, 3, 4, 5
POLICY = f"""
[[allow]]
users = [{ALICE}, {BOB}]
interfaces = ["eth0", "renamed0"]
saps = ["0x10-0x3e", "0xfc"]
at_most = 4

[[allow]]
users = [{ALICE}]
interfaces = ["eth0"]
saps = ["0x20"]
at_most = 4
station = true
"""
CLIENT = """
import os, socket, struct, sys, time
def ask(path, interface, sap, flags=0):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    connection.send(b"BWB" + bytes([2, sap, flags, 0, 0]) + interface.encode().ljust(16, bytes(1)))
    reply, descriptors, *_ = socket.recv_fds(connection, 300, 4)
    assert reply[:4] == b"BWB" + bytes([2]) and len(descriptors) == (reply[4] == 0)
    ask.ring = struct.unpack("<3I", reply[5:]) if descriptors else None
    return connection, reply[4], [socket.socket(fileno=descriptor) for descriptor in descriptors]
def frames(link):
    "All that are in the ring of the last grant, as the kernel's packet_mmap text has it."
    import mmap
    slot, block, blocks = ask.ring
    with mmap.mmap(link.fileno(), block * blocks) as ring:
        for start in (first + n * slot for first in range(0, block * blocks, block) for n in range(block // slot)):
            status, length, _, mac = struct.unpack_from("IIIH", ring, start)
            if status & 1:
                yield ring[start + mac:start + mac + length]
path = sys.argv[1]
"""
HOLD = (
    CLIENT
    + """
connection, status, held = ask(path, "eth0", int(sys.argv[2]))
print(status, flush=True)
time.sleep(100)
"""
)
# Gives the descriptor on to a child, which keeps it for some seconds, and ends after some others.
GIVE_ON = (
    CLIENT
    + """
connection, status, held = ask(path, "eth0", 0x20)
if os.fork() == 0:
    connection.close()
    sys.stdout.close(); os.close(1); os.close(2)
    time.sleep(float(sys.argv[2]))
    os._exit(0)
time.sleep(float(sys.argv[3]))
print(status)
"""
)


class Site:
    """A pair of hosts, each with a broker, and programs where all users can read them."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        """Take over the lab; brokers start with `serve`."""
        self.lab, self.directory = lab, directory
        self.brokers: dict[str, subprocess.Popen[str]] = {}

    def path(self, host: str) -> str:
        return str(self.directory / host / "broker.sock")

    def serve(self, host: str, *before: str) -> "subprocess.Popen[str]":
        folder = self.directory / host
        folder.mkdir(exist_ok=True)
        command = [str(self.directory / "barewire-broker"), "serve", "--socket", self.path(host)]
        options = ["--policy", str(self.directory / "policy.toml"), "--audit", str(folder / "audit")]
        broker = self.lab.popen(host, [*before, *command, *options], stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None and "ready" in broker.stdout.readline()
        self.brokers[host] = broker
        return broker

    def end(self, host: str, by: signal.Signals = signal.SIGTERM) -> int:
        broker = self.brokers.pop(host)
        broker.send_signal(by)
        return broker.wait(10)

    def as_user(self, user: int, *command: str) -> list[str]:
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--bounding-set=-all", *command]

    def probe(self, user: int, *arguments: str, broker: str = "h1") -> list[str]:
        return self.as_user(user, str(self.directory / "barewire-probe"), *arguments, "--broker", self.path(broker))

    def run(self, command: list[str], host: str = "h1") -> "subprocess.CompletedProcess[str]":
        return self.lab.run(host, command, capture_output=True, text=True, check=False, timeout=60)

    def python(self, user: int, program: str, *arguments: object, host: str = "h1") -> Any:
        """What a client of the user's prints, as JSON."""
        executable = os.path.realpath(sys.executable)
        command = self.as_user(user, executable, "-c", program, self.path(host), *map(str, arguments))
        done = self.run(command, host)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def asks(self, user: int, sap: int, interface: str = "eth0", flags: int = 0) -> int:
        """The answer to one request, given back at once."""
        return int(self.python(user, CLIENT + f"print(ask(path, {interface!r}, {sap}, {flags})[1])"))

    @contextlib.contextmanager
    def holding(self, user: int, sap: int) -> Iterator["subprocess.Popen[str]"]:
        executable = os.path.realpath(sys.executable)
        command = self.as_user(user, executable, "-c", HOLD, self.path("h1"), str(sap))
        process = self.lab.popen("h1", command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline() == f"{GRANTED}\n"
            yield process
        finally:
            process.kill()
            process.wait(10)

    def hooks(self, host: str = "h1") -> list[str]:
        """What the kernel calls for each frame of eth0 on behalf of packet sockets."""
        listing = self.lab.run(host, ["cat", "/proc/net/ptype"], capture_output=True, text=True).stdout
        lines = [line.split() for line in listing.splitlines()[1:]]
        return [line[2] for line in lines if line[:2] == ["ALL", "eth0"] and line[2].startswith("packet_rcv")]

    def audit(self, host: str = "h1") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / host / "audit").read_text().splitlines()]


@contextlib.contextmanager
def standing_site() -> Iterator[Site]:
    """A site with a broker in h1, where this machine allows one."""
    if os.geteuid() != 0:
        pytest.skip("real users of several numbers need root: run as root")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv(1) is missing: apt install util-linux")
    directory = Path(tempfile.mkdtemp(prefix="barewire-broker-"))
    directory.chmod(0o755)
    try:
        for program in ("barewire-broker", "barewire-probe"):
            shutil.copy(ROOT / "target" / "release" / program, directory)
        (directory / "policy.toml").write_text(POLICY)
        with stand_up("pair") as lab:
            site = Site(lab, directory)
            site.serve("h1")
            yield site
            for host, broker in site.brokers.items():
                assert broker.poll() is None, f"the broker of {host} has died"
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def serving(site: Site, user: int) -> Iterator[list[str]]:
    """The passive side in h2, by the broker there; the place's options for the active one."""
    control = site.directory / "control"
    control.mkdir(mode=0o777, exist_ok=True)
    control.chmod(0o777)
    listen = f"unix:{control}/listen-{user}"
    command = site.probe(user, "serve", "--until-eof", "--listen", listen, "--interface", "eth0", broker="h2")
    with site.lab.popen("h2", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and b"ready" in process.stdout.readline()
        yield ["--peer", listen, "--interface", "eth0"]
        assert process.stdin is not None
        process.stdin.close()
