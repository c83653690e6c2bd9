# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire-broker` with real users in a lab: who gets a descriptor, and when it ends.

The broker is root's process and keeps CAP_NET_RAW.
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
from pathlib import Path

import pytest
from broker_site import (
    ALICE,
    BOB,
    CLIENT,
    GIVE_ON,
    GRANTED,
    MALFORMED,
    MALLORY,
    NO_INTERFACE,
    NOT_ALLOWED,
    POLICY,
    TAKEN,
    TOO_MANY,
    Site,
    serving,
)
from conftest import ROOT, eventually

pytestmark = pytest.mark.usefixtures("nothing_left")


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
    assert site.python(ALICE, GIVE_ON, 2, 0) == GRANTED
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


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.matrix), signal.SIGKILL])
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
    try:
        connection.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except PermissionError:  # from Linux 6.16 on
        connection.send(message)
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


@pytest.mark.parametrize("seed", [1, 2])
def test_any_sequence_of_an_allowed_users_messages_leaves_the_broker_as_it_was(site: Site, seed: int) -> None:
    """Mutations of the corpus of `fuzz/`, with descriptors and without, to connections in any order: to those that were
    granted something, too, and some of them are closed at any moment.
    """
    before = broker_descriptors(site)
    corpus = [file.read_bytes().hex() for file in sorted((ROOT / "fuzz" / "corpus" / "broker").iterdir())]
    program = (
        CLIENT
        + f"""
import json, random
chance, corpus = random.Random({seed}), [bytes.fromhex(one) for one in {corpus}]
statuses, open_ones = set(), []
for _ in range(600):
    if len(open_ones) < 8 and chance.random() < 0.5:
        open_ones.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        open_ones[-1].connect(path)
        open_ones[-1].settimeout(0.2)
    if not open_ones:
        continue
    one = chance.choice(open_ones)
    message = bytearray(chance.choice(corpus))
    for _ in range(chance.choice([0, 0, 1, 2])):
        message[chance.randrange(len(message))] = chance.randrange(256)
    if chance.random() < 0.1:
        message = message[:chance.randrange(len(message))]
    try:
        try:
            socket.send_fds(one, [message], [0, 1][:chance.randrange(3)])
        except PermissionError:  # from Linux 6.16 on
            one.send(message)
        if chance.random() < 0.8:
            reply, descriptors, *_ = socket.recv_fds(one, 300, 4)
            statuses |= set(reply[4:5])
            for descriptor in descriptors:
                os.close(descriptor)
    except (TimeoutError, ConnectionError):
        pass
    if chance.random() < 0.4:
        open_ones.remove(one)
        one.close()
print(json.dumps(sorted(statuses)))
"""
    )
    statuses = set(site.python(ALICE, program))
    assert {GRANTED, MALFORMED} <= statuses
    assert eventually(lambda: broker_descriptors(site) == before)
    assert site.asks(BOB, 0x10) == GRANTED


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


def test_the_broker_keeps_one_capability_and_no_way_to_more(site: Site) -> None:
    script = 'for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = "$1" ] && cat $p/status; done; true'
    status = site.run(["sh", "-c", script, "sh", str(site.directory / "barewire-broker")]).stdout
    fields = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNewPrivs")))
    assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 1 << 13
    assert not any(int(fields[name], 16) for name in ("CapInh", "CapBnd", "CapAmb"))
    assert fields["NoNewPrivs"] == "1"


def test_the_systemd_unit_s_socket_can_be_reached() -> None:
    """systemd puts the preserved directory of a dynamic user below /run/private, which only root may enter."""
    unit = (ROOT / "crates" / "broker" / "systemd" / "barewire-broker.service").read_text().splitlines()
    assert "RuntimeDirectoryPreserve=yes" in unit and "User=barewire-broker" in unit
    assert not any(line.startswith("DynamicUser=") for line in unit)
    users = (ROOT / "setup" / "packages" / "debian" / "barewire.sysusers").read_text().splitlines()
    assert any(line.startswith("u barewire-broker ") for line in users)


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
