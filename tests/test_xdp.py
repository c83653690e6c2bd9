# SPDX-License-Identifier: Apache-2.0 OR MIT
"""AF_XDP between two hosts of a lab: what passes on to the kernel, what is refused, what is left in the kernel."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import PROBE, eventually, stand_up
from test_probe import drive, measure_while_it_breaks, place, records, serve

from barewire.doctor.xdp import xdp_findings
from barewire.lab import Lab, LinkSpec
from barewire.measure.subjects import Subject

pytestmark = pytest.mark.usefixtures("nothing_left")

LONG = ("--seconds", "60", "--samples", "100000000")

ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 9))
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    data, sender = server.recvfrom(2000)
    server.sendto(data, sender)
"""
ASK = """
import os, socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(5)
for number in range(int(sys.argv[2])):
    data = os.urandom(1 + number % 1400)
    client.sendto(data, (sys.argv[1], 9))
    assert client.recv(2000) == data
"""
# Neighbours of our frames: another EtherType, ours in a place of another, a length frame, too short a frame.
FOREIGN = [b"\x88\xb6" + bytes(60), b"\x12\x34\x88\xb5" + bytes(60), b"\x00\x40" + bytes(64), b"\x88\xb6"]
SEND = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
for frame in sys.argv[2:]:
    link.send(bytes.fromhex(sys.argv[1].replace(":", "")) + link.getsockname()[4] + bytes.fromhex(frame))
"""
LISTEN = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
link.settimeout(5)
wanted = sys.argv[1:]
print("ready", flush=True)
while wanted:
    frame = link.recv(2000)[12:].hex()
    # Short frames come padded.
    wanted = [one for one in wanted if not frame.startswith(one)]
"""


@pytest.fixture
def pair() -> Iterator[Lab]:
    with stand_up("pair") as lab:
        skip_without_xdp(lab)
        yield lab


def skip_without_xdp(lab: Lab) -> None:
    """A loud skip where this kernel or user cannot."""
    with serve(lab) as server:
        process = drive(lab, "pingpong", "--transport", "xdp", "--samples", "10")
        error = process.communicate(timeout=30)[1]
        server.kill()
    if process.returncode == 3:
        pytest.skip(f"no AF_XDP here: {error.strip()}")
    assert process.returncode == 0, error
    (lab.directory / "control").unlink()


def programs(lab: Lab, host: str) -> str:
    """What the kernel says of the XDP program on a host's interface; empty if there is none."""
    shown = lab.run(host, ["ip", "-json", "link", "show", "eth0"], capture_output=True, text=True, check=True).stdout
    found = json.loads(shown)[0].get("xdp", {})
    return json.dumps(found) if found.get("prog") or found.get("attached") else ""


@contextmanager
def running(lab: Lab, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", "subprocess.Popen[str]"]]:
    """Both sides at work over AF_XDP."""
    with serve(lab) as server:
        process = drive(lab, "pingpong", "--transport", "xdp", *LONG, *arguments)
        try:
            assert eventually(lambda: bool(programs(lab, "h1") and programs(lab, "h2"))), "no program was attached"
            yield server, process
        finally:
            process.kill()
            server.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("transport", "link"),
    [
        pytest.param(transport, link, marks=pytest.mark.matrix if (number + turn) % 2 else ())
        for number, link in enumerate(("xdp-generic", "xdp-native"))
        for turn, transport in enumerate(("raw", "llc1", "llc2", "llc3"))
    ],
)
def test_messages_arrive_intact_in_every_mode(transport, link, pair):
    with serve(pair):
        options = ["--transport", transport, "--link", link, "--sizes", "1,64,1476,5000", "--samples", "500"]
        output, error = drive(pair, "pingpong", *options).communicate(timeout=60)
    assert error == ""
    measured = [one for one in records(output) if one["record"] == "samples"]
    assert {one["message_bytes"] for one in measured} == {1, 64, 1476, 5000}
    assert sum(one["corrupt"] for one in measured) == 0 and records(output)[-1]["complete"]


@pytest.mark.parametrize("wait", ["block", "busypoll"])
def test_a_sleeping_side_is_woken_by_its_frames(wait, pair):
    with serve(pair):
        output, error = drive(pair, "pingpong", "--transport", "xdp", "--wait", wait).communicate(timeout=60)
    assert error == ""
    values = [value for one in records(output) if one["record"] == "samples" for value in one["values"]]
    assert sorted(values)[len(values) // 2] < 5_000_000, "a side slept until its time was up"


@pytest.mark.parametrize("link", ["xdp-generic", "xdp-native"])
def test_ip_keeps_working_on_an_interface_that_xdp_uses(link, pair):
    address = pair.host("h2").address
    with (
        running(pair, "--link", link),
        pair.popen("h2", [sys.executable, "-c", ECHO, address, "300"], stdout=subprocess.PIPE) as echo,
    ):
        assert echo.stdout is not None and echo.stdout.readline()
        done = pair.run("h1", [sys.executable, "-c", ASK, address, "300"], capture_output=True, text=True, check=False)
        echo.kill()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("link", ["xdp-generic", "xdp-native"])
def test_frames_of_others_pass_on_to_the_kernel(link, pair):
    wanted = [frame.hex() for frame in FOREIGN]
    listen = [sys.executable, "-c", LISTEN, *wanted]
    with running(pair, "--link", link), pair.popen("h2", listen, stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None and listener.stdout.readline()
        pair.run("h1", [sys.executable, "-c", SEND, pair.host("h2").mac, *wanted], check=True)
        assert listener.wait(timeout=20) == 0


def test_a_second_program_on_the_queue_is_refused_and_the_first_goes_on(pair):
    with running(pair) as (_, first):
        second_control = f"unix:{pair.directory / 'second'}"
        command = [PROBE, "serve", "--until-eof", "--no-announce", "--listen", second_control, *place(pair, "h2")]
        with pair.popen("h2", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
            assert second.stdout is not None and b"ready" in second.stdout.readline()
            options = ["pingpong", "--transport", "xdp", "--peer", second_control, *place(pair, "h1")]
            done = pair.run("h1", [PROBE, *options], capture_output=True, text=True, check=False)
            second.kill()
        assert done.returncode == 3 and "in use by another XDP program" in done.stderr
        assert first.poll() is None


@pytest.mark.parametrize("link", ["xdp-generic", "xdp-native"])
def test_a_killed_process_leaves_no_program(link, pair):
    with running(pair, "--link", link) as (server, process):
        for one in (process, server):
            one.send_signal(signal.SIGKILL)
            one.wait(timeout=10)
        assert eventually(lambda: not programs(pair, "h1") and not programs(pair, "h2")), "a program was left behind"
    (pair.directory / "control").unlink()
    skip_without_xdp(pair)


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("xdp-native", "vanishes"),
        pytest.param("xdp-generic", "goes down", marks=pytest.mark.matrix),
        pytest.param("xdp-generic", "vanishes", marks=pytest.mark.matrix),
        pytest.param("xdp-native", "goes down", marks=pytest.mark.matrix),
    ],
)
def test_an_interface_that_is_lost_in_mid_run_ends_it_with_a_reason(link, what, pair, tmp_path):
    assert measure_while_it_breaks(pair, Subject("raw", link=link), what, tmp_path / "run")


def test_an_interface_that_is_renamed_goes_on(pair):
    with running(pair) as (_, process):
        script = "import pyroute2\nwith pyroute2.IPRoute() as r: r.link('set', index={}, ifname='other0')"
        index = "r.link_lookup(ifname='eth0')[0]"
        pair.run("h2", [sys.executable, "-c", script.format(index)], check=True)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert records(output)[-1]["error"] == "interrupted"


def refused(lab: Lab, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and message of a measurement that is to be refused, the restriction on the active side."""
    with serve(lab):
        options = [*arguments, "--peer", f"unix:{lab.directory / 'control'}", *place(lab, "h1")]
        done = lab.run("h1", [*prefix, PROBE, "pingpong", *options], capture_output=True, text=True, check=False)
    (lab.directory / "control").unlink()
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("code", "said", "arguments"),
    [
        (2, "queue 7", ["--transport", "xdp", "--queue", "7"]),
        (2, "--pairs 1", ["--transport", "xdp", "--pairs", "2"]),
        (2, "transport raw", ["--transport", "xdp", "--link", "packet"]),
        (2, "--link", ["--transport", "tcp", "--link", "xdp"]),
        (3, "zero-copy", ["--transport", "llc2", "--link", "xdp-zerocopy"]),
    ],
)
def test_what_does_not_exist_is_refused(code, said, arguments, pair):
    returned, error = refused(pair, *arguments)
    assert (returned, said in error) == (code, True), error
    assert not programs(pair, "h1") and not programs(pair, "h2")


def test_without_privilege_or_lockable_memory_the_machine_cannot(pair):
    def without(*capabilities: str) -> tuple[str, ...]:
        dropped = ",".join(f"-{name}" for name in capabilities)
        return "setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"

    code, error = refused(pair, "--transport", "xdp", prefix=without("bpf", "sys_admin"))
    assert code == 3 and "CAP_BPF" in error, error
    code, error = refused(pair, "--transport", "xdp", prefix=without("net_raw"))
    assert code == 3 and "CAP_NET_RAW" in error, error
    code, error = refused(pair, "--transport", "xdp", prefix=("prlimit", "--memlock=65536", *without("ipc_lock")))
    assert code == 3 and "ulimit -l" in error, error


def test_an_mtu_beyond_a_chunk_is_refused_with_the_largest_that_goes():
    with stand_up("pair", LinkSpec(mtu=9000)) as lab:
        code, error = refused(lab, "--transport", "xdp")
    assert code == 2 and "ip link set eth0 mtu" in error, error


def test_the_doctor_tells_which_modes_an_interface_has(pair):
    [finding] = xdp_findings([])
    assert "generic, native works" in finding.detail and "no zero-copy" in finding.detail
    assert not programs(pair, "h1")
    with running(pair):
        done = pair.run("h1", [PROBE, "xdp-modes", "--interface", "eth0"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "in use" in done.stderr
