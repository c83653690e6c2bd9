# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire-broker` with real users in a lab: who gets a descriptor, what that is worth, when it ends.

The broker is root's process and keeps CAP_NET_RAW; the users have other numbers and no capability at all. Their
programs are the probe, and a client in Python that was written from the messages' picture, as an oracle for the codec.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, eventually, stand_up

from barewire.lab import Lab

pytestmark = pytest.mark.usefixtures("nothing_left")

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


@pytest.fixture
def site() -> Iterator[Site]:
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


@pytest.mark.parametrize("transport", ["llc1", "llc2", "llc3", "endpoint"])
def test_an_ordinary_user_measures_llc_and_endpoints(site: Site, transport: str) -> None:
    """Both sides without any capability, both sockets the broker's; afterwards nothing is held."""
    site.serve("h2")
    with serving(site, ALICE) as place:
        # Blocking, so that a busy machine's cores are there for the other side.
        options = ["--transport", transport, "--sizes", "64,9000", "--wait", "block"]
        done = site.run(site.probe(ALICE, "pingpong", *place, *options))
    assert done.returncode == 0, done.stderr
    assert {64, 9000} <= {json.loads(line).get("message_bytes") for line in done.stdout.splitlines()}
    for host in ("h1", "h2"):
        assert eventually(
            lambda host=host: [line["event"] for line in site.audit(host)] == ["start", "grant", "return"]
        )


def test_each_refusal_reaches_the_right_one_with_its_exit_code(site: Site) -> None:
    for user, arguments, code, text in (
        (MALLORY, ["--sap", "0x20"], 3, "no rule allows user 65532"),
        (BOB, ["--sap", "0x20"], 3, "as a station"),
        (ALICE, ["--sap", "0x40"], 3, "no rule allows"),
        (ALICE, ["--sap", "0x20", "--interface", "nosuch0"], 3, "no rule allows"),
    ):
        place = [] if "--interface" in arguments else ["--interface", "eth0"]
        done = site.run(site.probe(user, "station", "echo", *place, *arguments, "--no-announce"))
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    done = site.run(site.probe(ALICE, "station", "echo", "--interface", "eth0", broker="nowhere"))
    assert done.returncode == 3 and "is barewire-broker running" in done.stderr
    assert site.asks(ALICE, 0x20, "renamed0") == NO_INTERFACE
    # Nobody's own service access points, whatever the policy says.
    for sap in (0x00, 0x01, 0x21, 0xFF):
        assert site.asks(ALICE, sap) == MALFORMED
    assert [line["event"] for line in site.audit()] == ["start", *["refusal"] * 9]


def test_raw_frames_are_not_the_brokers(site: Site) -> None:
    site.serve("h2")
    with serving(site, ALICE) as place:
        done = site.run(site.probe(ALICE, "pingpong", *place, "--transport", "raw"))
    assert done.returncode == 2 and "choose llc1, llc2, llc3 or endpoint" in done.stderr


def test_a_sap_has_one_owner_until_that_is_killed(site: Site) -> None:
    with site.holding(ALICE, 0x20) as holder:
        assert site.asks(BOB, 0x20) == TAKEN
        assert site.asks(BOB, 0x22) == GRANTED
        done = site.run(site.probe(ALICE, "station", "echo", "--interface", "eth0", "--no-announce"))
        assert done.returncode == 2 and "is taken" in done.stderr
        holder.kill()
        holder.wait(10)
        assert eventually(lambda: site.asks(BOB, 0x20) == GRANTED, 1)


def test_a_descriptor_that_was_given_on_keeps_its_sap_taken(site: Site) -> None:
    """The holder ends its connection, and itself; a child of its has the socket. Only its end frees the SAP."""
    program = (
        CLIENT
        + """
connection, status, held = ask(path, "eth0", 0x20)
if os.fork() == 0:
    connection.close()
    sys.stdout.close(); os.close(1); os.close(2)
    time.sleep(2)
    os._exit(0)
print(status)
"""
    )
    assert site.python(ALICE, program) == GRANTED
    for _ in range(3):
        assert site.asks(BOB, 0x20) == TAKEN
        time.sleep(0.3)
    assert eventually(lambda: site.asks(BOB, 0x20) == GRANTED, 4)


def test_a_process_that_ends_while_another_keeps_its_connection_has_given_back(site: Site) -> None:
    program = (
        CLIENT
        + """
connection, status, held = ask(path, "eth0", 0x20)
if os.fork() == 0:
    held[0].close()
    os.close(1); os.close(2)
    time.sleep(3)
    os._exit(0)
print(status)
"""
    )
    assert site.python(ALICE, program) == GRANTED
    assert eventually(lambda: site.asks(BOB, 0x20) == GRANTED, 1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_started_anew_disturbs_nobody_and_forgets_nothing(site: Site, how: signal.Signals) -> None:
    """While a ping-pong runs: it goes on, its SAP stays taken, who asks meanwhile waits, and its end frees the SAP."""
    site.serve("h2")
    with serving(site, ALICE) as place:
        options = ["--transport", "llc2", "--sizes", "64", "--samples", "100000000", "--seconds", "4"]
        command = site.probe(ALICE, "pingpong", *place, *options)
        pingpong = site.lab.popen("h1", command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: any(line["event"] == "grant" for line in site.audit()))
        site.end("h1", how)
        asking = site.lab.popen(
            "h1",
            site.probe(BOB, "station", "echo", "--interface", "eth0", "--sap", "0x10"),
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.5)
        assert asking.poll() is None, "who asks while the broker is away waits for it"
        site.serve("h1")
        assert asking.communicate(timeout=10)[1].count("as a station") and asking.returncode == 3
        assert site.asks(BOB, 0x10) == TAKEN, "the ping-pong's"
        _, errors = pingpong.communicate(timeout=30)
        assert pingpong.returncode == 0, errors
    assert eventually(lambda: site.asks(BOB, 0x10) == GRANTED, 2)


@contextlib.contextmanager
def pingpong_of(site: Site, user: int, seconds: float) -> Iterator["subprocess.Popen[str]"]:
    """A ping-pong over type 2, through SAP 0x10 of brokers at both ends, that must miss no frame."""
    with serving(site, user) as place:
        options = ["--transport", "llc2", "--sizes", "64", "--samples", "100000000", "--seconds", str(seconds)]
        command = site.probe(user, "pingpong", *place, *options)
        before = len(site.audit())
        samples = site.directory / "samples"
        with samples.open("w") as output:
            process = site.lab.popen("h1", command, stdout=output, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: len(site.audit()) > before)
        yield process
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        end = json.loads(samples.read_text().splitlines()[-1])
        # A busy machine may repeat one; somebody who is moved misses many, or all that follow.
        assert end["counters"]["repeated"] + end["peer_counters"]["repeated"] < 10, end


def test_sockets_that_come_and_go_beside_another_share_its_hook_and_move_nobody(site: Site) -> None:
    """Before and behind the ping-pong's, given back in order or by a kill, and their SAPs taken again at once."""
    site.serve("h2")
    with contextlib.ExitStack() as around, pingpong_in_the_middle(site, around, 4) as pingpong:
        while pingpong.poll() is None:
            with site.holding(BOB, 0x18), site.holding(ALICE, 0x1A) as killed:
                assert site.hooks() == ["packet_rcv_fanout"]
                killed.kill()
                killed.wait(10)
                assert eventually(lambda: site.asks(BOB, 0x1A) == GRANTED, 1)
    assert eventually(lambda: site.hooks() == []), "the group ends with its last socket"
    assert not [line for line in site.audit() if line["event"] == "not in a group"]


@contextlib.contextmanager
def pingpong_in_the_middle(
    site: Site, around: contextlib.ExitStack, seconds: float
) -> Iterator["subprocess.Popen[str]"]:
    """Started between two holders, of whom the first has ended since; the second ends with `around`."""
    first = site.holding(BOB, 0x12)
    first.__enter__()
    with pingpong_of(site, ALICE, seconds) as pingpong:
        around.enter_context(site.holding(BOB, 0x14))
        first.__exit__(None, None, None)
        yield pingpong


def test_sockets_stay_in_their_places_when_the_broker_ends_and_then_their_neighbours(site: Site) -> None:
    """The last of the group is the ping-pong's: it would be moved by the first end before it. The next broker has a
    group of its own.
    """
    site.serve("h2")
    with contextlib.ExitStack() as before:
        holders = [
            before.enter_context(site.holding(user, sap)) for user, sap in ((BOB, 0x12), (ALICE, 0x14), (BOB, 0x16))
        ]
        with pingpong_of(site, ALICE, 4):
            site.end("h1")
            # The third stays: without what the broker left, it would get the ping-pong's frames now.
            for holder in holders[:2]:
                holder.kill()
                holder.wait(10)
                time.sleep(0.3)
            site.serve("h1")
            assert eventually(lambda: site.asks(BOB, 0x12) == GRANTED, 2)
            assert site.hooks() == ["packet_rcv_fanout"]
            with site.holding(BOB, 0x12):
                assert site.hooks() == ["packet_rcv_fanout"] * 2


def test_a_descriptor_that_was_given_on_moves_nobody_and_the_next_go_elsewhere(site: Site) -> None:
    """Its holder has ended; a child of its has the socket, and closes it while the ping-pong, the last, runs."""
    program = (
        CLIENT
        + """
connection, status, held = ask(path, "eth0", 0x20)
if os.fork() == 0:
    connection.close()
    sys.stdout.close(); os.close(1); os.close(2)
    time.sleep(3)
    os._exit(0)
time.sleep(1)
print(status)
"""
    )
    site.serve("h2")
    executable = os.path.realpath(sys.executable)
    command = site.as_user(BOB, executable, "-c", program, site.path("h1"))
    giver = site.lab.popen("h1", command, stdout=subprocess.PIPE, text=True)
    assert eventually(lambda: len(site.audit()) == 2)
    with pingpong_of(site, ALICE, 4):
        assert giver.communicate(timeout=10)[0] == f"{GRANTED}\n"
        time.sleep(0.5)
        with site.holding(ALICE, 0x22):
            assert site.hooks() == ["packet_rcv_fanout"] * 2
        assert eventually(lambda: site.asks(ALICE, 0x20) == GRANTED, 4)


# Becomes another program that the kernel refuses the group's program, as one does that has no such groups.
WITHOUT_GROUPS = """
import ctypes, os, struct, sys
number = {"x86_64": 54, "aarch64": 208}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 5, number), (0x20, 0, 0, 24), (0x15, 0, 3, 263), (0x20, 0, 0, 32), (0x15, 0, 1, 22),
         (0x06, 0, 0, 0x00050000 + 92), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_without_such_groups_every_socket_is_alone_and_the_log_says_what_that_costs(site: Site) -> None:
    site.end("h1")
    site.serve("h1", os.path.realpath(sys.executable), "-c", WITHOUT_GROUPS)
    site.serve("h2")
    with site.holding(BOB, 0x12), pingpong_of(site, ALICE, 1):
        assert site.hooks() == ["packet_rcv_fanout"] * 2
    notes = [line for line in site.audit() if line["event"] == "not in a group"]
    assert len(notes) == 2 and "PACKET_FANOUT_DATA" in notes[0]["reason"] and "40 ns" in notes[0]["means"]


def test_an_interface_renamed_or_removed_ends_nothing_but_itself(site: Site) -> None:
    with site.holding(ALICE, 0x20):
        assert site.run(["ip", "link", "set", "eth0", "name", "renamed0"]).returncode == 0
        assert site.asks(BOB, 0x20) == NO_INTERFACE
        assert site.asks(BOB, 0x20, "renamed0") == TAKEN
        assert site.asks(BOB, 0x22, "renamed0") == GRANTED
        assert site.run(["ip", "link", "delete", "renamed0"]).returncode == 0
        assert site.asks(BOB, 0x22, "renamed0") == NO_INTERFACE
    assert eventually(lambda: site.audit()[-1]["event"] == "return")


def test_200_clients_at_once_are_all_answered_and_leave_nothing(site: Site) -> None:
    """All connect before any asks; so many as the policy allows get a descriptor, each its own SAP."""
    before = broker_descriptors(site)
    program = (
        CLIENT
        + """
import json
connections = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(200)]
for connection in connections:
    connection.connect(path)
for number, connection in enumerate(connections):
    sap = 0x10 + 2 * (number % 24)
    connection.send(b"BWB" + bytes([2, sap, 0, 0, 0]) + b"eth0".ljust(16, bytes(1)))
answers = [socket.recv_fds(connection, 300, 4) for connection in connections]
print(json.dumps([reply[4] for reply, *_ in answers]))
"""
    )
    statuses = site.python(ALICE, program)
    assert (len(statuses), statuses.count(GRANTED)) == (200, 4)
    assert set(statuses) == {GRANTED, TAKEN, TOO_MANY}
    assert eventually(lambda: site.asks(BOB, 0x10) == GRANTED)
    assert eventually(lambda: broker_descriptors(site) == before)
    refusals = [line for line in site.audit() if line["event"] == "refusal"]
    assert 20 <= len(refusals) <= 60, "a flood is counted, not written line by line"


def test_garbage_and_silence_cost_their_sender_only(site: Site) -> None:
    """Bytes of all lengths, descriptors that nobody asked for, and connections that say nothing, by somebody whom the
    policy does not name; beside them an allowed user is served.
    """
    before = broker_descriptors(site)
    program = (
        CLIENT
        + """
import array, json, random
random.seed(1)
def connect():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    return connection
statuses, good = set(), b"BWB" + bytes([2, 0x20, 0, 0, 0]) + b"eth0".ljust(16, bytes(1))
messages = [b"x", good + b"x", good[:-1], bytes(200), random.randbytes(100_000), good * 11]
messages += [b"BWB" + bytes([9]) + good[4:]]
messages += [good[:at] + random.randbytes(1) + good[at + 1:] for at in range(24) for _ in range(5)]
for message in messages:
    connection = connect()
    rights = array.array("i", [0, 1, 2])
    connection.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    statuses.add(connection.recv(300)[4])
silent = [connect() for _ in range(300)]
if len(sys.argv) > 2:
    started = time.monotonic()
    ends = [connection.recv(300)[4] for connection in silent]
    statuses |= set(ends)
    statuses.add(int(time.monotonic() - started) + 100)
print(json.dumps(sorted(statuses)))
"""
    )
    assert set(site.python(MALLORY, program)) == {MALFORMED, NOT_ALLOWED}
    assert site.asks(ALICE, 0x20) == GRANTED
    waiting = site.lab.popen(
        "h1",
        site.as_user(MALLORY, os.path.realpath(sys.executable), "-c", program, site.path("h1"), "wait"),
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)
    assert site.asks(ALICE, 0x20) == GRANTED, "while the silent ones wait"
    assert set(json.loads(waiting.communicate(timeout=30)[0])) <= {MALFORMED, NOT_ALLOWED, TOO_MANY, 103, 104, 105}
    assert eventually(lambda: broker_descriptors(site) == before)


def broker_descriptors(site: Site) -> int:
    """How many descriptors the broker of h1 has: found by its program and its socket's folder."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if (process / "exe").readlink() == site.directory / "barewire-broker":
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    if site.path("h1").encode() in words:
                        return len(list((process / "fd").iterdir()))
    raise AssertionError("no broker")


def test_a_policy_with_a_mistake_is_named_by_line_and_the_old_one_stays(site: Site) -> None:
    policy = site.directory / "policy.toml"
    policy.write_text(POLICY.replace("at_most = 4", "atmost = 4", 1))
    done = site.run([str(site.directory / "barewire-broker"), "check", "--policy", str(policy)])
    assert done.returncode == 2 and f"{policy}:6: unknown field `atmost`" in done.stderr
    site.brokers["h1"].send_signal(signal.SIGHUP)
    assert eventually(lambda: any(line["event"].startswith("policy refused") for line in site.audit()))
    assert site.asks(ALICE, 0x20) == GRANTED
    policy.write_text(POLICY.replace(str(ALICE), str(MALLORY)))
    site.brokers["h1"].send_signal(signal.SIGHUP)
    assert eventually(lambda: any(line["event"] == "policy" for line in site.audit()))
    assert (site.asks(ALICE, 0x20), site.asks(MALLORY, 0x20)) == (NOT_ALLOWED, GRANTED)


def test_two_brokers_do_not_share_a_socket_and_one_without_privilege_says_so(site: Site) -> None:
    command = [str(site.directory / "barewire-broker"), "serve", "--policy", str(site.directory / "policy.toml")]
    second = site.run([*command, "--socket", site.path("h1")])
    assert second.returncode == 2 and "another broker serves" in second.stderr
    done = site.run(site.as_user(ALICE, *command, "--socket", str(site.directory / "x.sock")))
    assert done.returncode == 3 and "CAP_NET_RAW" in done.stderr
    assert site.asks(ALICE, 0x20) == GRANTED


# What the holder of a descriptor tries without any capability, and what comes of it; the other host sends frames.
WIDEN = (
    CLIENT
    + """
import errno, json
connection, status, held = ask(path, "eth0", 0x20)
link = held[0]
done = {}
def attempt(name, action):
    try:
        action()
        done[name] = "works"
    except OSError as error:
        done[name] = errno.errorcode[error.errno]
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_MARK, SOL_PACKET = 26, 27, 44, 36, 263
allow_all = struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF)
import ctypes
buffer = ctypes.create_string_buffer(allow_all)
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(buffer))
attempt("another filter", lambda: link.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program))
attempt("no filter", lambda: link.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0))
attempt("unlock", lambda: link.setsockopt(socket.SOL_SOCKET, SO_LOCK_FILTER, 0))
attempt("another mark", lambda: link.setsockopt(socket.SOL_SOCKET, SO_MARK, 0))
attempt("another mark by message", lambda: link.sendmsg(
    [bytes(60)], [(socket.SOL_SOCKET, SO_MARK, struct.pack("I", 0))]))
attempt("a socket of its own", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
index = socket.if_nametoindex("eth0")
promiscuous = struct.pack("iHH8s", index, 1, 0, bytes(8))
attempt("promiscuous", lambda: link.setsockopt(SOL_PACKET, 1, promiscuous))
attempt("own outgoing frames", lambda: link.setsockopt(SOL_PACKET, 23, struct.pack("i", 0)))
attempt("bind to lo", lambda: link.bind(("lo", 3)))
attempt("another's group", lambda: link.setsockopt(SOL_PACKET, 18, struct.pack("I", 77)))
attempt("bind to eth0", lambda: link.bind(("eth0", 3)))
attempt("a ring of its own", lambda: link.setsockopt(SOL_PACKET, 5, bytes(16)))
attempt("choosing for the group", lambda: link.setsockopt(SOL_PACKET, 22, program))
print(json.dumps(done), flush=True)
mine = link.getsockname()[4]
time.sleep(2)
print(json.dumps([mine.hex(), sorted({frame[:16].hex() for frame in frames(link)})]), flush=True)
"""
)
NEIGHBOUR = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
ours, to = link.getsockname()[4], bytes.fromhex(sys.argv[1].replace(":", ""))
other = bytes([2, 9, 9, 9, 9, 9])
end = time.monotonic() + 4
while time.monotonic() < end:
    for target, kind, dsap in ((to, 3, 0x20), (to, 3, 0x22), (to, 0x0800, 0x20), (other, 3, 0x20), (to, 0x8870, 0x22)):
        link.send(target + ours + kind.to_bytes(2, "big") + bytes([dsap, 0x20, 3]) + bytes(46))
    time.sleep(0.01)
"""


def test_a_holder_cannot_widen_what_it_receives(site: Site) -> None:
    """What needs no capability is done, and nothing comes of it: the filter tells interface, host and SAP itself."""
    address = site.lab.host("h1").mac
    neighbour = site.lab.popen("h2", [sys.executable, "-c", NEIGHBOUR, address])
    executable = os.path.realpath(sys.executable)
    done = site.run(site.as_user(ALICE, executable, "-c", WIDEN, site.path("h1")))
    assert done.returncode == 0, done.stderr
    assert neighbour.wait(10) == 0
    tried, (mine, got) = map(json.loads, done.stdout.splitlines())
    refused = (
        "another filter",
        "no filter",
        "unlock",
        "another mark",
        "another mark by message",
        "a socket of its own",
    )
    assert {name: tried.pop(name) for name in refused} == dict.fromkeys(refused, "EPERM")
    assert [tried.pop("a ring of its own"), tried.pop("choosing for the group")] == ["EBUSY", "EPERM"]
    in_a_group = {"bind to lo": "EINVAL", "bind to eth0": "EINVAL", "another's group": "EALREADY"}
    assert {name: tried.pop(name) for name in in_a_group} == in_a_group
    assert set(tried.values()) == {"works"}, f"documented in docs/security.md as possible: {tried}"
    assert [frame[:12] for frame in got] == [mine] and got[0][24:30] == "000320", got


# Frames that the holder of SAP 0x20 sends: the first is honest, the others are not.
FORGE = (
    CLIENT
    + """
connection, status, held = ask(path, "eth0", 0x20)
link = held[0]
mine, all = link.getsockname()[4], b"\\xff" * 6
link.setsockopt(263, 20, struct.pack("i", int(sys.argv[2])))
def frame(source, kind, ssap):
    return all + source + kind.to_bytes(2, "big") + bytes([0x20, ssap, 3]) + b"forged".ljust(46, b".")
for source, kind, ssap in ((mine, 9, 0x20), (mine, 9, 0x21), (mine, 0x8870, 0x20), (mine, 9, 0x22),
                           (mine, 0x0806, 0x20), (mine[:5] + bytes([99]), 9, 0x20), (mine, 0x8100, 0x20)):
    try:
        link.send(frame(source, kind, ssap))
    except OSError as error:
        pass
try:
    link.sendto(frame(mine, 9, 0x20), ("lo", 0))
except OSError:
    pass
print(0)
"""
)
HEAR = """
import json, socket
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
link.settimeout(1.5)
print("ready", flush=True)
got = []
try:
    while True:
        frame, address = link.recvfrom(2000)
        if b"forged" in frame and address[2] != 4:
            got.append((frame[6:12].hex(), frame[12:14].hex(), frame[15]))
except TimeoutError:
    print(json.dumps(got))
"""


@pytest.mark.parametrize("bypass", [0, 1])
def test_what_a_holder_forges_is_stopped_by_the_egress_rules_and_by_nothing_else(site: Site, bypass: int) -> None:
    """With and without PACKET_QDISC_BYPASS, which leads past tc's rules and not past these."""
    nft = shutil.which("nft")
    if nft is None:
        pytest.skip("nft(8) is missing: apt install nftables")
    heard = {}
    for rules in (False, True):
        if rules:
            policy = site.directory / "policy.toml"
            policy.write_text(POLICY.replace(', "renamed0"', ""))
            egress = site.run([str(site.directory / "barewire-broker"), "egress", "--policy", str(policy)])
            assert egress.returncode == 0, egress.stderr
            for _ in range(2):  # They replace themselves.
                loaded = site.lab.run("h1", [nft, "-f", "-"], input=egress.stdout, capture_output=True, text=True)
                assert loaded.returncode == 0, loaded.stderr
        listener = site.lab.popen("h2", [sys.executable, "-c", HEAR], stdout=subprocess.PIPE, text=True)
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        assert site.python(ALICE, FORGE, bypass) == 0
        heard[rules] = json.loads(listener.communicate(timeout=20)[0])
    mine = site.lab.host("h1").mac.replace(":", "")
    assert len(heard[False]) >= 6, "a locked filter stops nothing that is sent"
    assert heard[True] == [[mine, "0009", 0x20], [mine, "0009", 0x21], [mine, "8870", 0x20]]
    listing = site.run([nft, "list", "table", "netdev", "barewire"]).stdout
    assert 'device "lo"' in listing


def test_the_broker_keeps_one_capability_and_no_way_to_more(site: Site) -> None:
    script = 'for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = "$1" ] && cat $p/status; done; true'
    status = site.run(["sh", "-c", script, "sh", str(site.directory / "barewire-broker")]).stdout
    fields = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNewPrivs")))
    assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 1 << 13
    assert not any(int(fields[name], 16) for name in ("CapInh", "CapBnd", "CapAmb"))
    assert fields["NoNewPrivs"] == "1"


def test_the_systemd_unit_is_sound() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze(1) is missing: apt install systemd")
    unit = ROOT / "crates" / "broker" / "systemd" / "barewire-broker.service"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / unit.name
        copy.write_text(unit.read_text().replace("/usr/bin/barewire-broker", "/bin/true"))
        done = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and unit.name not in done.stderr, done.stderr
