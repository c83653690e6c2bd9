# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire-probe` between two hosts of a lab when something goes wrong: peers, links, forged frames, privilege."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PROBE, eventually, stand_up

from barewire.errors import MeasurementFailed
from barewire.lab import Lab
from barewire.measure.launch import Effort
from barewire.measure.runner import Plan, measure
from barewire.measure.session import StoppingRule
from barewire.measure.sites import LabSite
from barewire.measure.subjects import Subject
from barewire.results.store import samples

pytestmark = pytest.mark.usefixtures("nothing_left")

# Frames with the probe's EtherType that are not the probe's, from a third host to everybody.
INTRUDER = """
import socket, struct, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
victim = bytes.fromhex(sys.argv[1].replace(":", ""))
peer = bytes.fromhex(sys.argv[3].replace(":", ""))
ours = link.getsockname()[4]
ether_type = struct.pack(">H", 0x88B5)
payloads = [b"", b"x", b"short", bytes(46), bytes(1500), struct.pack(">III", 1, 2, 3) + bytes(100)]
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for payload in payloads:
        for target in (victim, b"\\xff" * 6, bytes(6)):
            link.send(target + ours + ether_type + payload)
    # And some in the peer's name.
    link.send(victim + peer + ether_type + struct.pack(">III", 7, 0, 0) + bytes(64))
    time.sleep(0.001)
"""


@pytest.fixture
def star() -> Iterator[Lab]:
    with stand_up("star:3") as lab:
        yield lab


def serve(lab: Lab, host: str = "h2") -> "subprocess.Popen[bytes]":
    socket_path = lab.directory / "control"
    command = [PROBE, "serve", "--until-eof", "--listen", f"unix:{socket_path}", *place(lab, host)]
    process = lab.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and b"ready" in process.stdout.readline()
    return process


def place(lab: Lab, host: str) -> list[str]:
    station = lab.host(host)
    return ["--interface", station.interface, "--address", station.address, "--cpus", str(station.cpus[0])]


def drive(lab: Lab, *arguments: str) -> "subprocess.Popen[str]":
    options = [*arguments, "--peer", f"unix:{lab.directory / 'control'}", *place(lab, "h1")]
    return lab.popen("h1", [PROBE, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def records(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    "test", [*(pytest.param(test, marks=pytest.mark.matrix) for test in ("pingpong", "stream")), "bidirectional"]
)
def test_unauthenticated_frames_are_counted_and_change_nothing(test, star):
    h1, h2 = star.host("h1"), star.host("h2")
    with serve(star), star.popen("h3", ["/usr/bin/python3", "-c", INTRUDER, h2.mac, "3", h1.mac]) as intruder:
        process = drive(star, test, "--transport", "raw", "--sizes", "64,5000", "--seconds", "1", "--samples", "100000")
        output, error = process.communicate(timeout=60)
        intruder.kill()
    assert process.returncode == 0, error
    found = records(output)
    measured = [one for one in found if one["record"] == "samples"]
    assert sum(len(one["values"]) for one in measured) > 5
    assert sum(one["corrupt"] for one in measured) == 0
    assert found[-1]["complete"] and found[-1]["peer_counters"]["foreign"] > 10


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_link_local_addresses_are_reached_through_the_control_channels_interface(transport):
    with stand_up("pair") as lab:
        for number, host in enumerate(lab.hosts, start=1):
            commands = (
                "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6",
                f"ip -6 address add fe80::{number}/64 dev eth0 nodad",
            )
            lab.run(host.name, ["sh", "-ec", "; ".join(commands)], check=True)
        command = [PROBE, "serve", "--until-eof", "--listen", "[::]:5288"]
        with lab.popen("h2", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None and b"ready" in server.stdout.readline()
            index = lab.run("h1", ["cat", "/sys/class/net/eth0/ifindex"], capture_output=True, text=True).stdout.strip()
            command = [PROBE, "pingpong", "--peer", f"[fe80::2%{index}]:5288", "--samples", "10"]
            done = lab.run("h1", [*command, "--transport", transport], capture_output=True, text=True, timeout=60)
            server.kill()
    assert done.returncode == 0, done.stderr
    assert any(one["record"] == "samples" and one["values"] for one in records(done.stdout))


class Line:
    """One end of a control channel that is no probe: JSON objects, one a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rw")

    def tell(self, message: dict) -> None:
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def hear(self) -> dict:
        return json.loads(self._file.readline())


SESSION = {"version": 6, "transport": "tcp", "wait": "block", "seed": 1, "session": 256, "pairs": 1, "pair": 0}
SESSION |= {"walk_bytes": 0, "give_way": False}
BLOCK = {"test": "stream", "message_bytes": 64, "first_sequence": 0, "lead_in": 1, "messages": 4, "lasts_ns": 0}


@pytest.mark.parametrize(
    "changes", [{"message_bytes": 0}, {"messages": 1 << 31, "message_bytes": 1 << 26}, {"lead_in": (1 << 32) - 4}]
)
def test_an_impossible_block_is_refused(changes):
    command = [PROBE, "serve", "--until-eof", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        host, port = json.loads(server.stdout.readline())["listen"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as control:
            line = Line(control)
            line.tell({"message": "open", **SESSION})
            address, _, data_port = line.hear()["endpoint"]["socket"].rpartition(":")
            with socket.create_connection((address, int(data_port)), timeout=10) as data:
                own = "{}:{}".format(*data.getsockname())
                line.tell({"message": "connect", "endpoint": {"socket": own}})
                assert line.hear() == {"message": "connected"}
                line.tell({"message": "block", **BLOCK, **changes})
                refusal = line.hear()
        server.kill()
    assert refusal["message"] == "refused" and "no block can be" in refusal["reason"]


def test_the_first_interrupt_ends_the_wait_for_a_peer_that_says_nothing():
    """Its machine is down, for instance, while the next block begins."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as data:
        peer = "{}:{}".format(*listener.getsockname())
        command = [PROBE, "pingpong", "--peer", peer]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            control, _ = listener.accept()
            line = Line(control)
            assert line.hear()["message"] == "open"
            nobody = {"name": "", "kernel": "", "cpu": None, "interface": None, "ip": None}
            endpoint = {"socket": "{}:{}".format(*data.getsockname())}
            line.tell({"message": "ready", "endpoint": endpoint, "host": nobody})
            assert line.hear()["message"] == "connect"
            line.tell({"message": "connected"})
            assert line.hear()["message"] == "block"
            process.send_signal(signal.SIGINT)
            try:
                output, error = process.communicate(timeout=10)
            finally:
                process.kill()
                control.close()
    assert process.returncode == 130, error
    assert not records(output)[-1]["complete"]


def test_nobody_answering_is_an_error_of_the_measured_thing():
    done = subprocess.run(
        [PROBE, "pingpong", "--peer", "unix:/nonexistent/socket"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "barewire-probe serve" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--transport", "raw"], "--interface"),
        (["--transport", "raw", "--interface", "nosuch0"], "nosuch0"),
        (["--transport", "raw", "--interface", "lo"], "the same interface"),
        (["--transport", "llc2", "--interface", "lo"], "the same interface"),
        (["--sizes", "0"], "'0'"),
        (["--transport", "raw", "--wait", "busypoll"], "busypoll"),
        (["--rate", "1"], "--rate"),
        (["--cpus", "4000"], "4000"),
        (["--cpus", "0-99999999999"], "0-99999999999"),
        (["--peer", "127.0.0.1:99999"], "'99999' is not a port"),
        (["--walk-bytes", "4096"], "--cache off"),
        (["--cache", "off", "--walk-bytes", str(1 << 55)], "--walk-bytes"),
    ],
)
def test_wrong_use_of_the_probe_has_exit_code_2(arguments, said, tmp_path):
    address = f"unix:{tmp_path / 'control'}"
    command = [PROBE, "serve", "--until-eof", "--listen", address, "--address", "127.0.0.1", "--interface", "lo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None and b"ready" in server.stdout.readline()
        done = subprocess.run(
            [PROBE, "pingpong", *(arguments if "--peer" in arguments else ["--peer", address, *arguments])],
            capture_output=True,
            text=True,
            check=False,
        )
        server.kill()
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_without_privilege_the_machine_cannot(tmp_path):
    """Both sides as a user without capabilities, on the loopback interface."""
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups"]
    if subprocess.run([*unprivileged, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot become an unprivileged user: run as root")
    tmp_path.chmod(0o777)
    shared = Path(tempfile.gettempdir())  # whose mode is the system's business
    for parent in tmp_path.parents:
        if parent.is_relative_to(shared) and parent != shared:
            parent.chmod(0o755)
    address = f"unix:{tmp_path / 'control'}"
    command = [*unprivileged, PROBE, "serve", "--until-eof", "--listen", address, "--interface", "lo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None and b"ready" in server.stdout.readline()
        options = ["pingpong", "--peer", address, "--transport", "raw", "--interface", "lo"]
        done = subprocess.run([*unprivileged, PROBE, *options], capture_output=True, text=True, check=False)
        server.kill()
    assert done.returncode == 3, done.stderr
    assert "CAP_NET_RAW" in done.stderr


def remove_interface(lab: Lab, host: str) -> None:
    script = "import pyroute2\nwith pyroute2.IPRoute() as r: r.link('del', index=r.link_lookup(ifname='eth0')[0])"
    assert lab.run(host, [sys.executable, "-c", script], check=False).returncode == 0


def measure_while_it_breaks(lab: Lab, subject: Subject, what: str, directory: Path) -> str:
    """Measure, and lose an interface meanwhile: why the run ended, in bounded time."""
    plan = Plan(
        tests=("pingpong",),
        subjects=(subject,),
        sizes=(64,),
        seed=1,
        effort=Effort(samples=10**6, seconds=1.0),
        stopping_rule=StoppingRule(launches_min=20, launches_max=20),
    )

    def break_it() -> None:
        eventually(lambda: len(list(directory.glob("launches/*"))) >= 3, 30)
        if what == "vanishes":
            remove_interface(lab, "h1")
        else:
            lab.set_link("h2", False)

    breaker = threading.Thread(target=break_it)
    breaker.start()
    began = time.monotonic()
    with pytest.raises(MeasurementFailed) as raised:
        measure(LabSite(lab), plan, directory, command=["test"])
    breaker.join()
    assert time.monotonic() - began < 60
    return str(raised.value)


LOST_OFTEN = {("vanishes", "endpoint")}


@pytest.mark.parametrize(
    ("what", "transport"),
    [
        pytest.param(what, transport, marks=[] if (what, transport) in LOST_OFTEN else [pytest.mark.matrix])
        for what in ("vanishes", "goes down")
        for transport in ("raw", "udp", "tcp", "llc2", "endpoint")
    ],
)
def test_an_interface_that_is_lost_in_mid_run_ends_it_and_keeps_the_samples(transport, what, tmp_path):
    with stand_up("pair") as lab:
        reason = measure_while_it_breaks(lab, Subject(transport), what, tmp_path / "run")
    assert reason
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert not run["complete"] and run["stopped_by"] == reason
    assert samples(tmp_path / "run").height > 1000


def test_pairs_share_the_rate_of_the_link(star):
    with serve(star):
        process = drive(star, "stream", "--transport", "raw", "--pairs", "2", "--rate", "100e6", "--blocks", "3")
        output, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    assert {block["pace_bit_s"] for block in records(output) if block["record"] == "samples"} == {50e6}


@pytest.mark.parametrize("warmup", [0, 2500])
def test_the_warm_up_has_the_asked_number_of_round_trips(warmup, star):
    with serve(star):
        process = drive(
            star, "pingpong", "--transport", "tcp", "--wait", "block", "--samples", "10", "--seconds", "40", "--warmup",
            str(warmup),
        )  # fmt: skip
        output, error = process.communicate(timeout=50)
    assert process.returncode == 0, error
    numbers = {"warmup": 0, "measure": 0}
    for block in records(output):
        if block["record"] == "samples":
            numbers[block["phase"]] += len(block["values"])
    # The first four estimate the speed.
    assert numbers == {"warmup": 4 + warmup, "measure": 10}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_probe_in_order(signal_number, star):
    with serve(star):
        process = drive(star, "pingpong", "--transport", "raw", "--seconds", "30", "--samples", "100000000")
        time.sleep(1)
        process.send_signal(signal_number)
        output, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    found = records(output)
    assert found[-1]["record"] == "end" and not found[-1]["complete"] and found[-1]["error"] == "interrupted"
    assert sum(len(one["values"]) for one in found if one["record"] == "samples") > 1000


def test_the_passive_side_outlives_peers_that_misbehave(star):
    with serve(star) as server:
        path = str(star.directory / "control")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\n", b'{"message":"end_block"}\n', b"\xff" * 100, b""):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(garbage)
        process = drive(star, "pingpong", "--transport", "tcp", "--samples", "100")
        output, error = process.communicate(timeout=20)
        assert process.returncode == 0, error
        assert server.poll() is None
    assert records(output)[-1]["complete"]


def test_the_passive_side_outlives_more_peers_than_it_has_descriptors_for(tmp_path):
    address = tmp_path / "control"
    command = f"ulimit -n 20; exec {PROBE} serve --until-eof --no-announce --listen unix:{address} --address 127.0.0.1"
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    with subprocess.Popen(["sh", "-c", command], **pipes) as server, contextlib.ExitStack() as peers:
        assert server.stdout is not None and b"ready" in server.stdout.readline()
        for _ in range(40):
            peer = peers.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(address))
        assert server.stderr is not None and b"Too many open files" in server.stderr.readline()
        peers.close()
        drive = [PROBE, "pingpong", "--peer", f"unix:{address}", "--wait", "block", "--samples", "10"]
        done = subprocess.run(drive, capture_output=True, text=True, timeout=20, check=False)
        server.kill()
    assert done.returncode == 0, done.stderr


@pytest.mark.matrix
def test_memory_stays_flat(star):
    """The same measurement for 1 s and for 6 s: nothing grows with time."""
    peaks = []
    with serve(star):
        for seconds in ("1", "6"):
            process = drive(star, "stream", "--transport", "raw", "--seconds", seconds, "--blocks", "100000")
            output, error = process.communicate(timeout=30)
            assert process.returncode == 0, error
            peaks.append(records(output)[-1]["peak_rss_kib"])
    assert peaks[1] < peaks[0] * 1.1 + 512
