# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab's hosts and links do on this kernel what the plan says, seen from programs inside the hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import comes_to_the_limit

from barewire.errors import MachineCannot, WrongUse
from barewire.lab import Lab, LinkSpec, enter
from barewire.lab.startup import environment

WIRE_OVERHEAD_BYTES, WIRE_FRAME_BYTES_MIN = 24, 84
RATE_DURATION_S = 0.5
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True}

ECHO_ONCE = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 7777))
print("ready", flush=True)
data, peer = server.recvfrom(70000)
server.sendto(data, peer)
"""

ASK = """
import socket, sys
name, size = sys.argv[1], int(sys.argv[2])
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(5)
client.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER = IP_PMTUDISC_DO: never fragment
try:
    client.sendto(bytes(size + 1), (name, 7777))
    print("one byte more than the MTU was sent")
except OSError as error:
    print(error.errno)
client.sendto(b"x" * size, (name, 7777))
data, peer = client.recvfrom(70000)
print(len(data), peer[0])
"""

SNIFF = """
import socket, sys
count = int(sys.argv[1])
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.bind(("eth0", 3))
sniffer.settimeout(30)
print("ready", flush=True)
for _ in range(count):
    print(sniffer.recv(70000).hex())
"""

SEND_FRAMES = """
import socket, sys
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("eth0", 0))
sender.setsockopt(socket.SOL_PACKET if hasattr(socket, "SOL_PACKET") else 263, 20, 1)  # PACKET_QDISC_BYPASS
for frame in sys.argv[1:]:
    sender.send(bytes.fromhex(frame))
"""

SEND_SLOWLY = """
import socket, sys, time
frame, count = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("eth0", 0))
sender.setsockopt(263, 20, 1)  # PACKET_QDISC_BYPASS
for number in range(count):
    sender.send(frame)
    if number % 50 == 49:
        time.sleep(0.002)  # the receiver's socket may hold no more than some 200
"""

# Until its input ends, and then until nothing more comes.
COUNT_FRAMES = """
import select, socket, sys
receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
try:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: it may have to wait for its core
except PermissionError:
    pass
receiver.bind(("eth0", 0x88B5))
print("ready", flush=True)
count, told, ready = 0, [sys.stdin], True
while ready or told:
    ready = select.select([receiver, *told], [], [], None if told else 0.5)[0]
    if receiver in ready:
        count += len(receiver.recv(100)) > 0
    elif ready:
        told = []
print(count)
"""

# Where it may, it runs before other tests, which would else take the time that a link's rate needs.
FLOOD = """
import contextlib, os, socket, sys, time
with contextlib.suppress(PermissionError):
    os.nice(-15)
frame, duration_s = bytes.fromhex(sys.argv[1]), float(sys.argv[2])
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("eth0", 0))
sender.setsockopt(263, 20, 1)  # PACKET_QDISC_BYPASS: what must not get past the shaper
end = time.monotonic() + duration_s
while time.monotonic() < end:
    for _ in range(16):
        try:
            sender.send(frame)
        except BlockingIOError:
            pass
"""

# Prints frames, and seconds, between the end of the first burst and the last frame.
COUNT = """
import contextlib, json, os, socket, sys, time
with contextlib.suppress(PermissionError):
    os.nice(-15)
duration_s = float(sys.argv[1])
counter = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
counter.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
counter.bind(("eth0", 0x88B5))
print("ready", flush=True)
frame = bytearray(70000)
counter.recv_into(frame)
start = time.monotonic()
counter.settimeout(1)
while time.monotonic() < start + 0.1:
    counter.recv_into(frame)
first, count = time.monotonic(), 0
while (last := time.monotonic()) < first + duration_s:
    counter.recv_into(frame)
    count += 1
dropped = int.from_bytes(counter.getsockopt(263, 6, 8)[4:8], "little")  # PACKET_STATISTICS
print(json.dumps({"frames": count, "first": first, "last": last, "dropped": dropped}))
"""


@pytest.fixture
def pair() -> Iterator[Lab]:
    with stand_up("pair") as lab:
        yield lab


@pytest.mark.parametrize("topology", ["pair", "star:4", "routed:3"])
def test_hosts_know_their_names_and_find_each_other(topology: str) -> None:
    with stand_up(topology) as lab:
        for host in lab.hosts:
            seen = output(lab, host.name, ["sh", "-c", "hostname; cat /etc/hostname; ls /sys/class/net"]).split()
            assert seen == [host.name, host.name, "eth0", "lo"]
        asker, answerer = lab.hosts[0], lab.hosts[-1]
        assert ask(lab, asker.name, answerer.name, 1472)[-1] == f"1472 {answerer.address}"


def test_outside_names_and_interfaces_stay_as_they_are(pair: Lab) -> None:
    assert "h1" not in os.uname().nodename
    assert not os.path.exists("/var/run/netns/h1")  # noqa: PTH110
    assert output(pair, "h1", ["cat", "/etc/hosts"]) != open("/etc/hosts").read()  # noqa: PTH123, SIM115


@pytest.mark.parametrize(
    ("topology", "rate_bit_s", "mtu"),
    [
        ("pair", None, 1500),
        ("pair", None, 65535),
        ("pair", 10**9, 9000),
        ("pair", 10**9, 65535),
        ("star:2", None, 65535),
        ("star:2", 10**9, 65535),
    ],
)
def test_a_datagram_as_large_as_the_mtu_passes_and_no_larger(topology: str, rate_bit_s: int | None, mtu: int) -> None:
    with stand_up(topology, LinkSpec(rate_bit_s, mtu)) as lab:
        refused, answered = ask(lab, "h1", "h2", mtu - 28)
        assert refused == "90", "EMSGSIZE for one byte more"
        assert answered == f"{mtu - 28} 10.77.0.2"


@pytest.mark.parametrize(
    ("topology", "rate_bit_s"), [("pair", None), ("pair", 10**8), ("star:3", None), ("star:3", 10**8)]
)
def test_frames_that_are_not_ip_pass_unchanged_and_nothing_else_is_on_the_wire(
    topology: str, rate_bit_s: int | None
) -> None:
    """Experimental EtherType, 802.3 length with an LLC header, jumbo LLC; the first frames heard are exactly those."""
    with stand_up(topology, LinkSpec(rate_bit_s)) as lab:
        header = lab.host("h2").mac.replace(":", "") + lab.host("h1").mac.replace(":", "")
        frames = [
            header + "88b5" + "00112233" * 12,
            header + "002e" + "4242f3" + "5a" * 43,
            header + "8870" + "4242f3" + "a5" * 1000,
        ]
        with popen(lab, "h2", SNIFF, str(len(frames))) as sniffer:
            assert sniffer.stdout is not None and sniffer.stdout.readline() == "ready\n"
            lab.run("h1", python(SEND_FRAMES, *frames), check=True)
            assert sniffer.communicate(timeout=60)[0].split() == frames


def test_a_router_passes_no_frames_and_a_link_that_was_down_keeps_its_route() -> None:
    with stand_up("routed:2", LinkSpec(10**9)) as lab:
        first, second = lab.hosts
        frame = (second.mac + first.mac).replace(":", "") + "88b5" + "00" * 46
        with popen(lab, "h2", COUNT_FRAMES) as counter:
            assert counter.stdout is not None and counter.stdout.readline() == "ready\n"
            lab.run("h1", python(SEND_FRAMES, frame), check=True)
            assert int(counter.communicate(timeout=60)[0]) == 0
        lab.set_link("h1", up=False)
        for _ in range(2):  # also one that was up
            lab.set_link("h1", up=True)
        assert ask(lab, "h1", "h2", 1472)[-1] == f"1472 {second.address}"


def test_a_host_that_sends_in_anothers_name_does_not_get_its_frames() -> None:
    with stand_up("star:3") as lab:
        mac = {host.name: host.mac.replace(":", "") for host in lab.hosts}
        experimental = "88b5" + "00" * 46
        with popen(lab, "h1", COUNT_FRAMES) as counter:
            assert counter.stdout is not None and counter.stdout.readline() == "ready\n"
            for _ in range(3):
                lab.run("h3", python(SEND_FRAMES, mac["h2"] + mac["h1"] + experimental), check=True)
                lab.run("h2", python(SEND_FRAMES, mac["h1"] + mac["h2"] + experimental), check=True)
            assert int(counter.communicate(timeout=60)[0]) == 3


@pytest.mark.parametrize("rate_bit_s", [pytest.param(None, marks=pytest.mark.matrix), 10**9])
def test_a_link_loses_the_share_of_frames_that_was_asked_for(rate_bit_s: int | None) -> None:
    """4000 frames each way, of which a fifth is lost: six standard deviations are 152 frames."""
    with stand_up("pair", LinkSpec(rate_bit_s, loss=0.2)) as lab:
        for sender, receiver in (("h1", "h2"), ("h2", "h1")):
            header = lab.host(receiver).mac.replace(":", "") + lab.host(sender).mac.replace(":", "")
            with popen(lab, receiver, COUNT_FRAMES) as counter:
                assert counter.stdout is not None and counter.stdout.readline() == "ready\n"
                lab.run(sender, python(SEND_SLOWLY, header + "88b5" + "00" * 46, "4000"), check=True)
                assert abs(int(counter.communicate(timeout=60)[0]) - 3200) < 152


def test_frames_are_received_on_the_receivers_core_if_asked_and_only_root_may_ask() -> None:
    steered = LinkSpec(receive_on="receiver")
    if os.geteuid() != 0:
        with pytest.raises(MachineCannot, match="run as root"):
            Lab.up("pair", steered)
        return
    with stand_up("pair", steered) as lab:
        for host in lab.hosts:
            (mask,) = output(lab, host.name, ["cat", "/sys/class/net/eth0/queues/rx-0/rps_cpus"]).split()
            assert int(mask.replace(",", ""), 16) == sum(1 << cpu for cpu in host.cpus)


@pytest.mark.parametrize("offloads", [False, True])
def test_offloads_are_as_asked_for_at_every_end(offloads: bool) -> None:
    program = (
        "import json, socket; from barewire.lab.network import active_offloads;"
        "print(json.dumps({n: active_offloads(n) for _, n in socket.if_nameindex() if n not in ('lo', 'switch')}))"
    )
    with stand_up("star:2", LinkSpec(10**9, offloads=offloads)) as lab:
        ends = [json.loads(output(lab, host.name, python(program, isolated=False))) for host in lab.hosts]
        ends.append(json.loads(output(lab, None, python(program, isolated=False))))
        # Queues between interfaces of the lab's own pass on what comes.
        others = ("nic-", "q-", "l-")
        interfaces = [(name, active) for end in ends for name, active in end.items() if not name.startswith(others)]
        assert len(interfaces) == 2 + 3 * 2
        for name, active in interfaces:
            assert bool(active) == offloads, f"{name}: {active}"


@pytest.mark.parametrize(
    ("topology", "rate_bit_s", "frame_bytes", "mtu"),
    [
        ("pair", 200_000_000, 1514, 1500),
        ("pair", 1_000_000_000, 9014, 9000),
        ("pair", 10_000_000, 60, 1500),
        ("star:2", 100_000_000, 1514, 1500),
    ],
)
def test_a_shaped_link_passes_frames_at_the_rate_of_a_wire(
    topology: str, rate_bit_s: int, frame_bytes: int, mtu: int
) -> None:
    """A raw sender that bypasses its own queueing discipline sends as fast as it can; the receiver counts.

    With the shortest frames an error in what a frame takes of the wire would be 20 % and more.
    """
    with stand_up(topology, LinkSpec(rate_bit_s, mtu)) as lab:
        comes_to_the_limit(rate_bit_s, lambda: flood_bit_s(lab, frame_bytes, ["h2"]))


def test_a_stars_links_limit_what_a_host_sends_to_all_others_together() -> None:
    """Two floods from one host share its link; the receivers never speak, and still see only what is for them."""
    rate_bit_s = 50_000_000
    with stand_up("star:3", LinkSpec(rate_bit_s)) as lab:
        comes_to_the_limit(rate_bit_s, lambda: flood_bit_s(lab, 1514, ["h2", "h3"]))


def test_a_link_that_was_down_carries_frames_again(pair: Lab) -> None:
    """Also what an interface forgets when it goes down, its permanent neighbours, must be back."""
    pair.set_link("h2", up=False)
    asked = pair.run("h1", python(ASK, "h2", "100"), capture_output=True, text=True, timeout=60)
    assert asked.returncode != 0 and "timed out" in asked.stderr
    pair.set_link("h2", up=True)
    assert ask(pair, "h1", "h2", 1472)[-1] == "1472 10.77.0.2"
    for host in ("h1", "h2"):
        table = output(pair, host, ["cat", "/proc/net/arp"]).splitlines()[1:]
        assert [line.split()[2] for line in table] == ["0x6"], "complete and permanent"


def test_ipv6_is_silent(pair: Lab) -> None:
    assert output(pair, "h1", ["cat", "/proc/net/if_inet6"]).split() == []


def flood_bit_s(lab: Lab, frame_bytes: int, receivers: list[str]) -> float:
    """Send raw frames from h1 as fast as possible; return the wire's bit/s at which they arrive at all receivers.

    Each counts for as long as the others, but from its own first frames on: the time is that in which any counted.
    """
    counters = [popen(lab, name, COUNT, str(RATE_DURATION_S)) for name in receivers]
    for counter in counters:
        assert counter.stdout is not None and counter.stdout.readline() == "ready\n"
    floods = []
    for name in receivers:
        frame = lab.host(name).mac.replace(":", "") + lab.host("h1").mac.replace(":", "") + "88b5"
        floods.append(lab.popen("h1", python(FLOOD, frame.ljust(2 * frame_bytes, "0"), str(RATE_DURATION_S + 0.4))))
    counted = [json.loads(counter.communicate(timeout=60)[0]) for counter in counters]
    assert [flood.wait(timeout=60) for flood in floods] == [0] * len(floods)
    assert [count["dropped"] for count in counted] == [0] * len(counted)
    wire_bits = 8 * max(WIRE_FRAME_BYTES_MIN, frame_bytes + WIRE_OVERHEAD_BYTES)
    duration_s = max(count["last"] for count in counted) - min(count["first"] for count in counted)
    return sum(count["frames"] for count in counted) * wire_bits / duration_s


def stand_up(topology: str, link: LinkSpec | None = None) -> Lab:
    """Make a lab, or skip saying what this machine lacks."""
    try:
        return Lab.up(topology, link)
    except MachineCannot as error:
        pytest.skip(f"no lab on this machine: {error}")


def python(program: str, *arguments: str, isolated: bool = True) -> list[str]:
    return [sys.executable, *(["-I"] if isolated else []), "-c", program, *arguments]


def output(lab: Lab, host: str | None, command: list[str]) -> str:
    """Run a command in a host, or in the switch's namespace if `host` is None."""
    line = lab.command(host or "h1", command)
    if host is None:
        keeper = lab._state.keeper
        assert keeper is not None
        place = line.index(enter.__file__) + 1
        line[place : place + 2] = [str(keeper.pid), str(keeper.start_ticks)]
    return subprocess.run(line, check=True, capture_output=True, text=True, env=environment(), timeout=20).stdout


def popen(lab: Lab, host: str, program: str, *arguments: str) -> "subprocess.Popen[str]":
    return lab.popen(host, python(program, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(lab: Lab, asker: str, answerer: str, size: int) -> list[str]:
    """Send one datagram of `size` bytes by name, and one that is a byte larger; return what the asker printed."""
    with popen(lab, answerer, ECHO_ONCE) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        try:
            return output(lab, asker, python(ASK, answerer, str(size))).splitlines()
        finally:
            server.kill()


def test_links_are_operational_as_soon_as_the_lab_stands() -> None:
    """The kernel says so late; MPI libraries take another interface when it does not. A race, so several labs."""
    for _ in range(3):
        with stand_up("pair") as lab:
            seen = [
                lab.run(host.name, ["cat", "/sys/class/net/eth0/operstate"], **CAPTURED).stdout for host in lab.hosts
            ]
            assert seen == ["up\n", "up\n"]


def test_a_launcher_in_one_host_reaches_the_others_as_if_by_ssh() -> None:
    """Same folder, the other host's name and cores, the command's own exit code; an unknown host is unreachable."""
    with stand_up("star:3") as lab:
        shell, environment = lab.remote_shell()

        def reach(host: str, *command: str) -> "subprocess.CompletedProcess[str]":
            return lab.run("h1", [shell, "-x", host, *command], env=dict(os.environ) | environment, **CAPTURED)

        told = reach("h3", "hostname;", "pwd;", "taskset -cp $$ | cut -d: -f2;", "exit 9")
        cores = ",".join(map(str, lab.host("h3").cpus))
        assert told.stdout.split() == ["h3", str(Path.cwd()), cores] and told.returncode == 9
        lost = reach("h9", "hostname")
        assert lost.returncode == 255 and "there are: h1, h2, h3" in lost.stderr


def test_what_a_program_leaves_in_shared_memory_ends_with_its_host() -> None:
    with stand_up("pair") as lab:
        lab.run("h1", ["touch", f"/dev/shm/barewire-test-{lab.id}"], check=True)
        assert not lab.run("h2", ["ls", "/dev/shm"], **CAPTURED).stdout
        assert not list(Path("/dev/shm").glob(f"barewire-test-{lab.id}"))


def test_a_shaped_pair_has_one_cable() -> None:
    with stand_up("pair", LinkSpec(10**9)) as lab:
        assert ask(lab, "h1", "h2", 1472)[-1] == "1472 10.77.0.2"
        lab.set_carrier("h1", up=False)
        for host in ("h1", "h2"):
            assert "NO-CARRIER" in output(lab, host, ["ip", "-o", "link", "show", "eth0"])
        lab.set_carrier("h1", up=True)
        assert ask(lab, "h1", "h2", 1472)[-1] == "1472 10.77.0.2"


def test_a_link_without_a_carrier_is_up_and_gets_nothing() -> None:
    """As behind a cable that was pulled at the switch; a pair without a rate has no switch."""
    with stand_up("star:2") as lab:

        def carrier() -> list[str]:
            command = ["ip", "-o", "link", "show", "eth0"]
            flags = lab.run("h1", command, capture_output=True, text=True, check=True).stdout
            return [flag for flag in ("NO-CARRIER", "LOWER_UP", ",UP") if flag in flags]

        assert carrier() == ["LOWER_UP", ",UP"]
        lab.set_carrier("h1", up=False)
        assert carrier() == ["NO-CARRIER", ",UP"]
        lab.set_carrier("h1", up=True)
        assert carrier() == ["LOWER_UP", ",UP"]
    with stand_up("pair") as lab, pytest.raises(WrongUse, match="star:2"):
        lab.set_carrier("h1", up=False)
