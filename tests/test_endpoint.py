# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Endpoints between real programs in the lab: over frames and through shared memory, and what others do to them.

An ordinary user's endpoint, by the broker, is in test_broker.py; the crate's own tests have all that needs no system.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROBE, bench_json, eventually, processes_with, stand_up
from test_llc_tshark import TSHARK, dissect
from test_probe import place, records
from test_xdp import skip_without_xdp

from barewire.lab import Lab, LinkSpec

pytestmark = pytest.mark.usefixtures("nothing_left")

# Tags of the only pair: crates/probe/src/transport/endpoint/mod.rs.
PASSIVE, ACTIVE = 0x10, 0xFC
# crates/llc/src/extension.rs: bytes of the mark, and of it and what follows behind PDUs; framing.rs.
MARK_BYTES = 8
BEHIND_CHECK = {"RR": 8 + 19, "SABME": 8 + 17, "UA": 8 + 17}
PADDED_MAX = 45
SIZES = "1,2,64,1400,1481,65536,1048576"
FEW = ("--samples", "100", "--warmup", "20", "--blocks", "3", "--seconds", "0.05")
LONG = ("--seconds", "60", "--samples", "100000000")
# A name in the network namespace, which an endpoint holds while it is open.
DOOR = b"@barewire-endpoint/"

# What a station without the token says from the peer's host in the peer's name: every kind of PDU, with no token, a
# wrong one, and one that is cut short.
FORGER = """
import os, socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
to, dsap, ssap, rounds = bytes.fromhex(sys.argv[1].replace(":", "")), *map(int, sys.argv[2:5])
ours = link.getsockname()[4]
I, UI, SABME, DISC, UA, DM, FRMR, XID, TEST, AC0, AC1 = 0, 3, 0x7F, 0x53, 0x73, 0x1F, 0x97, 0xBF, 0xF3, 0x77, 0xF7
sent = 0
for number in range(rounds):
    token = os.urandom(8)
    numbered = [bytes([kind, number % 128 << 1 | poll]) for kind in (1, 5, 9) for poll in (0, 1)]
    numbered += [bytes([number % 128 << 1, ns % 128 << 1]) for ns in (number, number + 1)]
    pdus = [*numbered, *(bytes([kind]) for kind in (UI, SABME, DISC, UA, DM, FRMR, XID, TEST, AC0, AC1))]
    for control in pdus:
        for response in (0, 1):
            llc = bytes([dsap, ssap | response]) + control
            for length, behind in ((len(llc), bytes(40)), (len(llc), token + bytes(40)), (len(llc) + 28, token * 4),
                                   (0x8870, token + bytes(50)), (0x8870, token[:7])):
                link.send(to + ours + length.to_bytes(2, "big") + llc + behind)
                sent += 1
print(sent)
"""

CAPTURE = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
link.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
print("ready", flush=True)
sys.stdin.read()
link.settimeout(0.2)
try:
    while True:
        print(link.recv(70000).hex())
except TimeoutError:
    pass
"""


def serve(lab: Lab, host: str = "h2", core_of: str = "h2") -> "subprocess.Popen[bytes]":
    control = f"unix:{lab.directory / 'control'}"
    command = [PROBE, "serve", "--until-eof", "--no-announce", "--listen", control, *on(lab, host, core_of)]
    process = lab.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and b"ready" in process.stdout.readline()
    return process


def drive(lab: Lab, *arguments: str) -> "subprocess.Popen[str]":
    options = [*arguments, "--transport", "endpoint", "--peer", f"unix:{lab.directory / 'control'}", *place(lab, "h1")]
    return lab.popen("h1", [PROBE, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on(lab: Lab, host: str, core_of: str) -> list[str]:
    """A host's interface, and a core that is another's where two programs of one host are to run at once."""
    return [*place(lab, host)[:-1], str(lab.host(core_of).cpus[0])]


def to_its_end(lab: Lab, *arguments: str) -> list[dict]:
    """The records of a measurement in which nothing went wrong."""
    output, error = drive(lab, *arguments).communicate(timeout=60)
    assert error == ""
    found = records(output)
    measured = [one for one in found if one["record"] == "samples" and one["phase"] == "measure"]
    assert found[-1]["complete"] and measured
    assert sum(one["corrupt"] + one["lost"] for one in measured) == 0
    return found


def is_under_way(lab: Lab, *hosts: str) -> bool:
    """Whether there is an endpoint in each of these hosts."""
    return all(
        DOOR in lab.run(host, ["cat", "/proc/net/unix"], capture_output=True, check=True).stdout for host in hosts
    )


def started(lab: Lab, *arguments: str, hosts: tuple[str, ...] = ("h1", "h2")) -> "subprocess.Popen[str]":
    """A long measurement that has begun."""
    process = drive(lab, *arguments, *LONG)
    assert eventually(lambda: is_under_way(lab, *hosts)), "no endpoint was opened"
    time.sleep(0.3)
    assert process.poll() is None, process.communicate()
    return process


def frames_seen(lab: Lab, host: str) -> int:
    """Frames that the host's interface has sent and received."""
    lines = lab.run(host, ["cat", "/proc/net/dev"], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = next(line for line in lines if line.strip().startswith("eth0:")).split(":")[1].split()
    return int(fields[1]) + int(fields[9])


@pytest.mark.parametrize(
    ("mtu", "sizes_of_all"),
    [(1500, SIZES), (9000, "1481,1048576"), pytest.param(9000, SIZES, marks=pytest.mark.matrix)],
)
def test_messages_of_all_lengths_arrive_intact_over_frames(mtu, sizes_of_all):
    with stand_up("pair", LinkSpec(mtu=mtu)) as lab, serve(lab):
        before = frames_seen(lab, "h2")
        for test in ("pingpong", "stream", "bidirectional"):
            found = to_its_end(lab, test, "--sizes", sizes_of_all, *FEW)
            sizes = {one["message_bytes"] for one in found if one["record"] == "samples"}
            assert sizes == set(map(int, sizes_of_all.split(",")))
            assert found[-1]["counters"]["foreign"] == found[-1]["peer_counters"]["foreign"] == 0
        assert frames_seen(lab, "h2") - before > 1000


@pytest.mark.parametrize("wait", ["block", "adaptive"])
def test_a_sender_that_sleeps_hears_of_acknowledgements(wait):
    """Of messages of several frames, whose memory is lent until then: with none free it has to wait for one."""
    with stand_up("pair") as lab, serve(lab):
        for test in ("pingpong", "stream", "bidirectional"):
            found = to_its_end(lab, test, "--wait", wait, "--sizes", "9000,100000", "--seconds", "0.1", "--blocks", "3")
            values = [value for one in found if one["record"] == "samples" for value in one["values"]]
            assert test == "stream" or sorted(values)[len(values) // 2] < 5_000_000, "it slept until its time was up"


def test_lost_frames_are_repeated_and_no_message_is_lost():
    with stand_up("pair", LinkSpec(loss=0.01)) as lab, serve(lab):
        for test in ("pingpong", "stream", "bidirectional"):
            end = to_its_end(lab, test, "--sizes", "64,65536", "--blocks", "3", "--seconds", "0.5")[-1]
            assert end["counters"]["repeated"] + end["peer_counters"]["repeated"] > 0


def test_programs_of_one_host_use_shared_memory_and_no_frame():
    with stand_up("pair") as lab, serve(lab, "h1"):
        before = frames_seen(lab, "h1")
        for test in ("pingpong", "stream", "bidirectional"):
            to_its_end(lab, test, "--sizes", SIZES, "--samples", "1000", *FEW[2:])
        assert frames_seen(lab, "h1") == before


@pytest.mark.parametrize(
    ("test", "victim"),
    [
        pytest.param("pingpong", "h1", marks=pytest.mark.matrix),
        pytest.param("stream", "h2", marks=pytest.mark.matrix),
        ("bidirectional", "h2"),
    ],
)
def test_frames_without_the_token_are_counted_and_change_nothing(test, victim):
    """From the peer's host, address and service access point: nothing but the token tells them apart."""
    tags = {"h1": (ACTIVE, PASSIVE), "h2": (PASSIVE, ACTIVE)}[victim]
    with stand_up("pair") as lab, serve(lab):
        process = drive(lab, test, "--sizes", "5000", "--seconds", "4", "--samples", "10000000", "--blocks", "10000")
        assert eventually(lambda: is_under_way(lab, "h1", "h2"))
        forger = ["/usr/bin/python3", "-c", FORGER, lab.host(victim).mac, *map(str, tags), "40"]
        done = lab.run("h1" if victim == "h2" else "h2", forger, capture_output=True, text=True, check=True)
        assert process.poll() is None, "the forged frames came too late"
        output, error = process.communicate(timeout=60)
    assert error == ""
    found = records(output)
    assert sum(one["corrupt"] + one["lost"] for one in found if one["record"] == "samples") == 0
    counters = found[-1]["counters" if victim == "h1" else "peer_counters"]
    # Every single one, but for those that came while the ring was full.
    sent = int(done.stdout)
    assert sent > 5000 and sent - counters["ring_full"] <= counters["foreign"] <= sent
    assert counters["malformed"] == 0


@pytest.mark.parametrize(
    ("passive_host", "wait", "limit_s"),
    [
        ("h1", "spin", 2),
        pytest.param("h2", "block", 12, marks=pytest.mark.matrix),
        pytest.param("h2", "spin", 12, marks=pytest.mark.matrix),
        pytest.param("h1", "block", 2, marks=pytest.mark.matrix),
    ],
)
def test_a_passive_process_that_is_killed_ends_the_active_one(passive_host, wait, limit_s):
    """Over the link N2 and T1 bound it (crates/llc/src/bounds.rs), on one host the end of the pipe tells."""
    with stand_up("pair") as lab, serve(lab, passive_host) as server:
        options = ("--sizes", "65536", "--blocks", "1000000", "--wait", wait)
        process = started(lab, "stream", *options, hosts=("h1", passive_host))
        server.send_signal(signal.SIGKILL)
        began = time.monotonic()
        output, error = process.communicate(timeout=30)
        assert time.monotonic() - began < limit_s
        assert process.returncode == 1 and ("control channel" in error or "its process ended" in error), error
        assert not is_under_way(lab, "h1") and not is_under_way(lab, "h2")
    end = records(output)[-1]
    assert end["record"] == "end" and not end["complete"] and end["error"] in error


@pytest.mark.matrix
def test_an_interface_that_goes_down_ends_the_measurement_and_a_new_one_can_begin():
    """The active side's; the passive side's is in test_probe.py, with all transports."""
    with stand_up("pair") as lab, serve(lab) as server:
        process = started(lab, "stream", "--sizes", "65536", "--blocks", "1000000")
        lab.set_link("h1", False)
        error = process.communicate(timeout=5)[1]
        assert process.returncode == 1 and "interface 'eth0' is down" in error, error
        assert server.poll() is None
        lab.set_link("h1", True)
        assert eventually(lambda: not is_under_way(lab, "h2"), 12), "the passive side goes on"
        to_its_end(lab, "pingpong", "--samples", "100")


@pytest.mark.parametrize("passive_host", ["h2", "h1"])
def test_a_side_that_sleeps_for_a_message_uses_no_processor(passive_host):
    """The active side is stopped in the middle of a ping-pong: its next message does not come."""
    with stand_up("pair") as lab, serve(lab, passive_host):
        process = started(lab, "pingpong", "--wait", "block", hosts=("h1", passive_host))
        passive, active = probe_of("serve"), probe_of("pingpong")
        before = processor_ns(passive)
        assert eventually(lambda: processor_ns(passive) > before + 10e6), "it does not measure"
        os.kill(active, signal.SIGSTOP)
        time.sleep(0.3)
        before = processor_ns(passive)
        time.sleep(0.5)
        used = processor_ns(passive) - before
        process.kill()
        process.communicate(timeout=10)
    # It looks after its control channel fifty times a second, which is 0.2 to 0.6 ms each; who spins uses all 500.
    assert used < 50e6, f"{used / 1e6} ms of 500"


def probe_of(kind: str) -> int:
    """The only probe of this kind in this test's labs, itself and not who started it there."""
    ours = {int(pid): Path(f"/proc/{pid}/cmdline") for pid in processes_with(os.environ["XDG_RUNTIME_DIR"])}
    [found] = (
        pid for pid, path in ours.items() if path.read_bytes().split(b"\0")[:2] == [PROBE.encode(), kind.encode()]
    )
    return found


def processor_ns(pid: int) -> int:
    """Processor time of all threads of a process."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def test_all_ways_of_waiting_and_four_processes_at_once(tmp_path):
    short = ("--launches", "1", "--samples", "100", "--warmup", "10", "--blocks", "3", "--seconds", "0.05")
    options = ("--transport", "endpoint", "--wait", "spin,adaptive,block", "--processes", "4", "--sizes", "1400")
    subjects = {"endpoint", "endpoint/adaptive", "endpoint/block"}
    # On a busy machine the four may never stream all at once.
    for attempt in range(4):
        document = bench_json("pingpong,stream", *options, *short, "-o", str(tmp_path / f"run{attempt}"))
        four = {(one["test"], one["subject"]): one for one in document["shared"]}
        if len(four) == 2 * len(subjects):
            break
    assert set(four) == {(test, subject) for test in ("pingpong", "stream") for subject in subjects}
    assert all(one["processes"] == 4 and (one["median"] is None or all(one["each"])) for one in four.values())
    assert all(one["lost"] == 0 for one in document["series"])


@pytest.mark.parametrize("link", ["xdp-generic", "xdp-native"])
def test_messages_arrive_intact_over_af_xdp(link):
    with stand_up("pair") as lab:
        skip_without_xdp(lab)
        with serve(lab):
            to_its_end(lab, "pingpong", "--link", link, "--sizes", "1,64,1476,5000,100000", "--samples", "200")
            to_its_end(lab, "stream", "--link", link, "--sizes", "64,65536", "--blocks", "3")


def test_a_tag_has_one_endpoint_and_the_second_is_told():
    with stand_up("pair") as lab, serve(lab):
        first = started(lab, "pingpong", "--wait", "block")
        error = (second := drive(lab, "pingpong")).communicate(timeout=20)[1]
        assert second.returncode == 2 and "another process of this host uses the address" in error, error
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        output, _ = first.communicate(timeout=20)
        assert records(output)[-1]["error"] == "interrupted"
        # The passive side may wait for a message meanwhile, for 10 s.
        assert eventually(lambda: not is_under_way(lab, "h2"), 20)
        to_its_end(lab, "pingpong", "--samples", "100")


@pytest.mark.skipif(TSHARK is None, reason="tshark is missing: apt-get install tshark")
def test_a_capture_is_plain_llc_to_tshark_with_check_and_mark_in_their_places(tmp_path):
    """Short PDUs go behind a length, others under EtherType 0x8870; all carry what docs/protocol.md says."""
    frames = captured(lambda lab: to_its_end(lab, "pingpong", "--sizes", "1,64,5000", "--samples", "50"))
    # The numbers of the probe's first and last service access point were NetWare's (unofficially) and that of Remote
    # Program Load; tshark would read the user data as theirs.
    plain = ("--disable-protocol", "ipx", "--disable-protocol", "rpl")
    readings = dissect(frames, tmp_path / "endpoint.pcap", *plain)
    kinds = Counter(reading["kind"] for reading in readings)
    assert kinds["SABME"] and kinds["UA"] and kinds["I"] > 300, kinds
    assert set(kinds) <= {"SABME", "UA", "I", "RR", "DISC", "DM"}
    marks, forms = defaultdict(set), set()
    for frame, reading in zip(frames, readings, strict=True):
        assert {reading["dsap"], reading["ssap"]} == {PASSIVE, ACTIVE}
        # All of the information field, and nothing that tshark takes for something else, or for malformed.
        assert reading["data"] == (frame[18 : 14 + reading["length"]] if reading["kind"] == "I" else b"")
        length = int.from_bytes(frame[12:14], "big")
        assert reading["is_jumbo"] == (length == 0x8870) == (reading["length"] > PADDED_MAX)
        forms.add((reading["kind"] == "I", reading["is_jumbo"]))
        # The information begins with it; elsewhere it lies behind the PDU.
        is_information = reading["kind"] == "I"
        at = 14 + (4 if is_information else length)
        end = 14 + reading["length"] if is_information else at + 4 + BEHIND_CHECK.get(reading["kind"], MARK_BYTES)
        if is_information and frame[at + 13] & 0x80:
            # Of a message of several frames: its head, and the flags of those that follow.
            end = min(end, at + 14 + (64 if frame[at + 14] & 1 else 1))
        head = frame[14:18] if is_information else frame[14:17]
        covered = (b"" if is_information else frame[17:at]) + frame[at + 4 : end]
        assert int.from_bytes(frame[at : at + 4], "big") == crc32c(head, frame[:12] + covered), reading["kind"]
        if reading["kind"] in ("I", "RR"):
            marks[frame[6:12]].add(frame[at + 4 : at + 4 + MARK_BYTES])
    assert forms == {(True, True), (True, False), (False, False)}
    # One for each direction of the one connection.
    [[one], [other]] = marks.values()
    assert one != other and bytes(MARK_BYTES) not in (one, other)


def crc32c(head: bytes, rest: bytes) -> int:
    """CRC32C of what follows the first bytes of a PDU, which are added to the register's first value."""
    register = 0xFFFFFFFF ^ int.from_bytes(head, "little")
    for byte in rest:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def captured(exchange: Callable[[Lab], object]) -> list[bytes]:
    """The LLC frames that either host receives of an exchange; what it sends itself passes packet sockets by."""
    with stand_up("pair") as lab:
        listeners = [
            lab.popen(host, [sys.executable, "-c", CAPTURE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for host in ("h1", "h2")
        ]
        for listener in listeners:
            assert listener.stdout is not None and listener.stdout.readline()
        with serve(lab):
            exchange(lab)
        lines = [line for listener in listeners for line in listener.communicate(timeout=20)[0].splitlines()]
    frames = map(bytes.fromhex, lines)
    return [frame for frame in frames if frame[12:14] == b"\x88\x70" or int.from_bytes(frame[12:14], "big") <= 1500]
