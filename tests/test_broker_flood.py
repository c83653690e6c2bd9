# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire-broker` while local programs flood it: others are served, it hears signals, and its log stays small."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from broker_site import ALICE, BOB, CLIENT, GRANTED, MALLORY, Site

pytestmark = pytest.mark.usefixtures("nothing_left")

SOON_S = 2.0
# More than the two cores of a small machine: one loop in Python connects more slowly than the broker accepts.
PROCESSES = 4
# Ends by itself: after some seconds, so many connections, or with the broker.
FLOOD = """
import collections, signal, socket, sys, time
path, kind = sys.argv[1:]
signal.alarm(30)
request = b"BWB" + bytes([2, 0x20, 0, 0, 0]) + b"eth0".ljust(16, bytes(1))
kept = collections.deque(maxlen=200 if kind == "stays" else 0)
unread = []
print("floods", flush=True)
until, made = time.monotonic() + 15, 0
while time.monotonic() < until and made < 5_000_000:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # One that does not wait at a full queue gets ahead of those who do.
    connection.setblocking(kind != "hangs up, impatient")
    try:
        connection.connect(path)
        made += 1
        if kind.startswith("asks"):
            connection.send(request)
        if kind == "asks, listens":
            unread.append(connection)
        # Then the broker has a grant or a return to do in each turn.
        while len(unread) >= 100:
            unread.pop(0).recv(300)
    except (BlockingIOError, ConnectionResetError, BrokenPipeError):
        pass
    except ConnectionRefusedError:
        break
    kept.append(connection)
    del connection
"""
# How long each of some requests took, and their statuses.
ASK = (
    CLIENT
    + """
import json, signal
signal.alarm(15)
answers = []
for _ in range(5):
    began = time.monotonic()
    connection, status, held = ask(path, "eth0", 0x10)
    answers.append((status, time.monotonic() - began))
    for one in [*held, connection]:
        one.close()
    time.sleep(0.2)
print(json.dumps(answers))
"""
)


@contextlib.contextmanager
def flooding(site: Site, floods: list[tuple[int, str]]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Programs of users that connect in a loop, each in its way, for long enough that the broker is behind."""
    processes = []
    try:
        for user, kind in floods * (PROCESSES // len(floods)):
            command = site.as_user(user, os.path.realpath(sys.executable), "-c", FLOOD, site.path("h1"), kind)
            processes.append(site.lab.popen("h1", command, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "floods\n"
        time.sleep(0.5)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=10)


@pytest.mark.parametrize(
    "floods",
    [
        pytest.param([(MALLORY, "hangs up")], marks=pytest.mark.matrix),
        pytest.param([(MALLORY, "hangs up, impatient")], marks=pytest.mark.matrix),
        [(MALLORY, "stays")],
        pytest.param([(BOB, "asks, hangs up")], marks=pytest.mark.matrix),
        [(MALLORY, "hangs up"), (BOB, "asks, listens")],
    ],
    ids=lambda floods: " and ".join(kind for _, kind in floods),
)
def test_a_flood_of_connections_keeps_nobody_waiting(site: Site, floods: list[tuple[int, str]]) -> None:
    """By users with and without a rule. Another user's requests are granted, and SIGTERM is heard."""
    began = time.monotonic()
    with flooding(site, floods) as processes:
        answers = site.python(ALICE, ASK)
        print("requests took", [round(seconds, 3) for _, seconds in answers], "s")
        assert [status for status, _ in answers] == [GRANTED] * len(answers)
        assert max(seconds for _, seconds in answers) < SOON_S
        assert all(process.poll() is None for process in processes), "they flood still"
        asked = time.monotonic()
        assert site.end("h1") == 0
        took = time.monotonic() - asked
        print("SIGTERM took", round(took, 3), "s")
        assert took < SOON_S
    refusals = [line for line in site.audit() if line["event"].startswith("refusal")]
    # Of each of two users, 20 a second and how many more there were.
    assert len(refusals) <= 2 * 21 * (time.monotonic() - began + 1)
