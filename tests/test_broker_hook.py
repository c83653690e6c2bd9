# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sockets of one interface share the kernel's hook: they come and go beside each other, and miss no frame."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from broker_site import (
    ALICE,
    BOB,
    CLIENT,
    GIVE_ON,
    GRANTED,
    Site,
    serving,
)
from conftest import eventually

pytestmark = pytest.mark.usefixtures("nothing_left")


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
            # The socket that was granted takes the kernel a while to close.
            assert eventually(lambda: site.hooks() == ["packet_rcv_fanout"], 2)
            with site.holding(BOB, 0x12):
                assert site.hooks() == ["packet_rcv_fanout"] * 2


def test_a_descriptor_that_was_given_on_moves_nobody_and_the_next_go_elsewhere(site: Site) -> None:
    """Its holder has ended; a child of its has the socket, and closes it while the ping-pong, the last, runs."""
    site.serve("h2")
    executable = os.path.realpath(sys.executable)
    command = site.as_user(BOB, executable, "-c", GIVE_ON, site.path("h1"), "3", "1")
    giver = site.lab.popen("h1", command, stdout=subprocess.PIPE, text=True)
    assert eventually(lambda: len(site.audit()) == 2)
    with pingpong_of(site, ALICE, 4):
        assert giver.communicate(timeout=10)[0] == f"{GRANTED}\n"
        time.sleep(0.5)
        with site.holding(ALICE, 0x22):
            assert site.hooks() == ["packet_rcv_fanout"] * 2
        assert eventually(lambda: site.asks(ALICE, 0x20) == GRANTED, 4)


# Holds four SAPs; each line of its input is one to give back, or nothing: then it says what each ring has heard.
HOLDER = (
    CLIENT
    + """
import json
held = {sap: ask(path, "eth0", sap) for sap in (0x12, 0x14, 0x16, 0x18)}
print(json.dumps([answer[1] for answer in held.values()]), flush=True)
for line in sys.stdin:
    if line.strip():
        connection, _, (link,) = held.pop(int(line))
        link.close()
        connection.close()
        continue
    heard = {sap: sorted({frame[17] for frame in frames(link)}) for sap, (_, _, (link,)) in held.items()}
    print(json.dumps(heard), flush=True)
"""
)
# A frame for each SAP, marked with the turn.
TO_ALL = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
to = bytes.fromhex(sys.argv[1].replace(":", ""))
for sap in range(0x10, 0x20, 2):
    link.send(to + link.getsockname()[4] + bytes([0, 4, sap, 0x20, 3, int(sys.argv[2])]) + bytes(42))
"""


def test_an_interface_that_was_down_brings_each_socket_its_own_frames(site: Site) -> None:
    """The kernel puts a group's sockets into another order then. Some are given back before, between and while it is
    down, so that places and that order differ."""
    executable = os.path.realpath(sys.executable)
    command = site.as_user(ALICE, executable, "-c", HOLDER, site.path("h1"))
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with site.lab.popen("h1", command, **streams) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert json.loads(holder.stdout.readline()) == [GRANTED] * 4

        def say(line: object) -> None:
            assert holder.stdin is not None
            print(line, file=holder.stdin, flush=True)

        def give_back(sap: int) -> None:
            say(sap)
            assert eventually(lambda: any(e["event"] == "return" and e["sap"] == sap for e in site.audit()), 3)

        expected: dict[str, list[int]] = {"18": [], "20": [], "22": [], "24": []}
        for turn, (before, meanwhile) in enumerate([(None, None), (0x12, None), (0x16, 0x14)], start=1):
            if before:
                give_back(before)
                del expected[str(before)]
            site.lab.set_link("h1", up=False)
            if meanwhile:
                give_back(meanwhile)
                del expected[str(meanwhile)]
            site.lab.set_link("h1", up=True)
            site.lab.run("h2", [executable, "-c", TO_ALL, site.lab.host("h1").mac, str(turn)], check=True)
            expected = {sap: [*heard, turn] for sap, heard in expected.items()}
            say("")
            assert json.loads(holder.stdout.readline()) == expected, turn
        assert site.hooks() == ["packet_rcv_fanout"]
        holder.stdin.close()


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
        assert eventually(lambda: site.hooks() == ["packet_rcv_fanout"] * 2)
    notes = [line for line in site.audit() if line["event"] == "not in a group"]
    assert len(notes) == 2 and "PACKET_FANOUT_DATA" in notes[0]["reason"] and "40 ns" in notes[0]["means"]
