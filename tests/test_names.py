# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hosts found by name in a lab: by the hosts file, by asking on the segment, and what happens when that goes wrong.

The lab gives every host a hosts file with all of its names, so tests of the segment look into an empty one.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROBE, eventually, stand_up

from barewire.lab import Lab

NO_FILE = ["--hosts-file", "/dev/null"]
ON_SEGMENT = [*NO_FILE, "--interface", "eth0"]

# From h3 to everybody, until it is killed: frames for the service access point of names that answer nothing. Of a real
# answer, each but the last lacks something; the last one has a number that nobody asked with.
INTRUDER = """
import socket, struct, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
ours = link.getsockname()[4]
answer = b"BWN" + bytes([1, 2]) + bytes(4) + bytes(18) + bytes([2]) + b"h2"
ui, test = b"\\xba\\xba\\x03", b"\\xba\\x01\\xf3"
pdus = [ui, ui + bytes(40), ui + answer[:20], ui + answer[:-1], ui + answer[:3] + b"\\x09" + answer[4:],
        ui + answer[:4] + b"\\x07" + answer[5:], ui + answer[:-2] + b"\\xff\\xff", ui + b"\\xff" * 1400, b"\\xba",
        b"\\xba\\xba\\x7f", test + answer, test, ui + answer]
print("ready", flush=True)
while True:
    for pdu in pdus:
        link.send(b"\\xff" * 6 + ours + struct.pack(">H", len(pdu)) + pdu)
    time.sleep(0.0005)
"""


@pytest.fixture(scope="module")
def star() -> Iterator[Lab]:
    with stand_up("star:4") as lab:
        yield lab


def probe(lab: Lab, host: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return lab.run(host, [PROBE, *arguments], capture_output=True, text=True, check=False, timeout=30)


@contextlib.contextmanager
def running(lab: Lab, host: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of ours that says in its first line that it is ready; ended with the block."""
    process = lab.popen(host, [PROBE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.communicate()[1]
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def listing(lab: Lab, host: str = "h1", *more: str) -> dict[str, Any]:
    done = probe(lab, host, "hosts", "--interface", "eth0", "--json", "--seconds", "0.3", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def connect(lab: Lab, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return probe(lab, "h1", "station", "connect", "--bytes", "10000", *arguments)


def assert_connected(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["event"], last["received"], last["intact"]) == ("done", 10000, True)


@pytest.fixture
def announced(star: Lab) -> Iterator[Lab]:
    """The hosts 2 to 4 answer, each by another program."""
    with (
        running(star, "h2", "station", "echo", "--interface", "eth0"),
        running(star, "h3", "announce", "--interface", "eth0"),
        running(star, "h4", "serve", "--interface", "eth0"),
    ):
        yield star


def test_four_hosts_find_each_other_on_the_segment(announced: Lab) -> None:
    found = listing(announced)
    assert found["schema"] == "barewire-names/1"
    assert [(one["name"], one["mac"], one["interface"]) for one in found["hosts"]] == [
        (host.name, host.mac, "eth0") for host in announced.hosts
    ]
    this, *others = found["hosts"]
    assert this["is_this_host"] and this["round_trip_ns"] is None
    assert all(not one["is_this_host"] and 1000 < one["round_trip_ns"] < 300_000_000 for one in others)
    assert [one["control"] for one in others] == [None, None, f"{announced.host('h4').address}:5288"]
    assert sum(found["ignored"].values()) == 0
    assert [one["name"] for one in listing(announced, "h3")["hosts"]] == ["h3", "h2", "h4"]


def test_the_listing_is_a_table_and_a_hosts_file_that_works(announced: Lab, tmp_path: Path) -> None:
    table = probe(announced, "h1", "hosts", "--interface", "eth0", "--seconds", "0.3")
    assert table.returncode == 0 and table.stderr == ""
    rows = [line.split() for line in table.stdout.splitlines()]
    assert rows[0] == ["name", "MAC", "interface", "round", "trip", "probe"] and rows[1][3:] == ["this", "host", "-"]
    assert [row[0] for row in rows[1:]] == ["h1", "h2", "h3", "h4"] and rows[2][4] == "µs"
    written = probe(announced, "h1", "hosts", "--interface", "eth0", "--seconds", "0.3", "--as-file")
    file = tmp_path / "hosts"
    file.write_text(written.stdout)
    assert_connected(connect(announced, "--peer", "h2", "--hosts-file", str(file)))


def test_in_a_lab_a_name_needs_no_option(announced: Lab) -> None:
    assert_connected(connect(announced, "--peer", "h2"))
    assert_connected(connect(announced, "--peer", "H2"))
    assert_connected(connect(announced, "--peer", announced.host("h2").mac))
    asked = probe(announced, "h1", "station", "ask", "--peer", "h2")
    assert asked.returncode == 0 and json.loads(asked.stdout.splitlines()[0])["from"] == announced.host("h2").mac


def test_a_name_in_no_file_is_found_on_the_segment(announced: Lab) -> None:
    assert_connected(connect(announced, "--peer", "h2", *ON_SEGMENT))


def test_a_station_that_knows_no_names_is_listed_without_one(star: Lab) -> None:
    with running(star, "h2", "station", "echo", "--interface", "eth0", "--no-announce"):
        assert [(one["name"], one["mac"]) for one in listing(star)["hosts"][1:]] == [(None, star.host("h2").mac)]
        written = probe(star, "h1", "hosts", "--interface", "eth0", "--seconds", "0.3", "--as-file").stdout
    assert f"# no name:      {star.host('h2').mac} eth0" in written.splitlines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peer", "h9"], ["'h9' was not found: not in ", "barewire-hosts (4 hosts)", "give --interface"]),
        (["--peer", "h9", *ON_SEGMENT], ["not in /dev/null (0 hosts)", "nor on the segment of eth0"]),
        (["--peer", "02:00:00:00:00:09"], ["'02:00:00:00:00:09' was not found", "give --interface"]),
        (["--peer", "h1"], ["h1 is this host itself"]),
        (["--peer", "h2", "--interface", "lo"], ["barewire-hosts:2: h2 is reached through eth0"]),
        (["--peer", "h2", "--hosts-file", "/nonexistent/hosts"], ["the hosts file /nonexistent/hosts: No such file"]),
        (["--peer", "h2", *NO_FILE, "--interface", "nosuch0"], ["there is no interface 'nosuch0'"]),
        (["--peer", "10.77.0.2"], ["no host name"]),
    ],
)
def test_a_peer_that_cannot_be_found_is_wrong_use(arguments: list[str], said: list[str], star: Lab) -> None:
    done = connect(star, *arguments)
    assert done.returncode == 2, done.stderr
    assert all(words in done.stderr for words in said), done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h2 02:00:00:00:00:02", "has 2 word(s)"),
        ("h2 02-00-00-00-00-02 eth0", "write it as 02:00:00:00:00:02"),
        ("h2 ff:ff:ff:ff:ff:ff eth0", "of no single host"),
        ("H1 02:00:00:00:00:02 eth0", "'h1' is also in line 2"),
        ("h2 02:00:00:00:00:01 eth0", "is also in line 2"),
    ],
)
def test_a_mistake_in_the_hosts_file_is_named_with_its_line(line: str, said: str, tmp_path: Path, star: Lab) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"# all of them\nh1 02:00:00:00:00:01 eth0\n\n{line}\n")
    done = star.run("h1", ["env", f"BAREWIRE_HOSTS={file}", PROBE, "station", "ask", "--peer", "h1"], **TEXT)
    assert done.returncode == 2
    assert done.stderr.startswith(f"barewire-probe: {file}:4: ") and said in done.stderr


TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 30}


def test_two_stations_of_one_name_are_both_named_and_none_is_taken(star: Lab) -> None:
    with (
        running(star, "h2", "announce", "--interface", "eth0", "--name", "storage"),
        running(star, "h3", "announce", "--interface", "eth0", "--name", "Storage"),
    ):
        done = connect(star, "--peer", "storage", "--interface", "eth0")
        written = probe(star, "h1", "hosts", "--interface", "eth0", "--seconds", "0.3", "--as-file").stdout
    assert done.returncode == 2 and "2 stations on eth0 answer to 'storage'" in done.stderr
    assert star.host("h2").mac in done.stderr and star.host("h3").mac in done.stderr
    assert len([line for line in written.splitlines() if line.startswith("# again: storage")]) == 1


def test_garbage_is_counted_and_changes_nothing(star: Lab) -> None:
    intruder = star.popen("h3", ["/usr/bin/python3", "-c", INTRUDER], stdout=subprocess.PIPE)
    try:
        assert intruder.stdout is not None and intruder.stdout.readline() == b"ready\n"
        with running(star, "h2", "station", "echo", "--interface", "eth0") as echo:
            found = listing(star)
            assert [one["name"] for one in found["hosts"]] == ["h1", "h2"]
            reasons = {what for what, count in found["ignored"].items() if count > 0}
            assert reasons >= {"too_short", "not_ours", "unknown_version", "unknown_kind", "wrong_length", "bad_name"}
            assert reasons >= {"not_llc", "unexpected", "stray"}
            assert_connected(connect(star, "--peer", "h2", *ON_SEGMENT))
            assert echo.poll() is None
        answering = star.popen("h4", [PROBE, "announce", "--interface", "eth0"], stdout=subprocess.PIPE, text=True)
        assert answering.stdout is not None and answering.stdout.readline()
        listing(star)
        answering.send_signal(signal.SIGINT)
        said, _ = answering.communicate(timeout=10)
    finally:
        intruder.kill()
        intruder.communicate()
    end = json.loads(said)
    assert answering.returncode == 130 and end["answered"] == 3 and end["ignored"]["not_ours"] > 10


def test_a_link_that_was_down_is_answered_on_again(star: Lab) -> None:
    with running(star, "h2", "serve", "--interface", "eth0"):
        star.set_link("h2", False)
        assert [one["name"] for one in listing(star)["hosts"]] == ["h1"]
        star.set_link("h2", True)
        assert eventually(lambda: [one["name"] for one in listing(star)["hosts"]] == ["h1", "h2"], 10)


# Each transport and each way of finding a name; the other pairs in `make matrix`.
@pytest.mark.parametrize(
    ("transport", "how"),
    [
        pytest.param(transport, how, marks=() if number % 3 == turn else pytest.mark.matrix)
        for number, transport in enumerate(("tcp", "raw", "llc1", "llc2", "llc3"))
        for turn, how in enumerate(("on the segment", "by the hosts file", "by the system and the hosts file"))
    ],
)
def test_measurements_take_names_that_the_system_may_not_know(
    how: str, transport: str, tmp_path: Path, star: Lab
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"storage {star.host('h4').mac} eth0\n")
    given = {
        "on the segment": ["--peer", "storage", *ON_SEGMENT],
        "by the hosts file": ["--peer", "storage", "--hosts-file", str(file)],
        "by the system and the hosts file": ["--peer", "h4"],
    }[how]
    with running(star, "h4", "serve", "--interface", "eth0", "--name", "storage"):
        done = probe(star, "h1", "pingpong", *given, "--transport", transport, "--samples", "50")
    assert done.returncode == 0, done.stderr
    start, *_, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert start["peer"]["name"] == "h4" and end["complete"]
    if transport not in ("tcp",):
        assert start["host"]["interface"] == "eth0"


def test_a_measurement_with_a_name_that_nobody_has_says_where_it_looked(star: Lab) -> None:
    done = probe(star, "h1", "pingpong", "--peer", "h9", "--transport", "raw", "--interface", "eth0")
    assert done.returncode == 2
    for words in ("'h9' was not found", "the system's names (", "barewire-hosts (4 hosts)", "the segment of eth0"):
        assert words in done.stderr


def test_a_station_without_a_probe_is_told_from_one_that_is_silent(announced: Lab) -> None:
    mac = announced.host("h3").mac
    done = probe(announced, "h1", "pingpong", "--peer", mac, "--transport", "raw")
    assert done.returncode == 1 and "no probe listens there" in done.stderr
    done = probe(announced, "h1", "pingpong", "--peer", "02:00:00:00:00:09", "--interface", "eth0")
    assert done.returncode == 1 and "02:00:00:00:00:09 does not answer on eth0" in done.stderr


@pytest.mark.parametrize(("place", "said"), [(["--interface", "lo"], "CAP_NET_RAW"), ([], "no --interface was given")])
def test_without_privilege_or_interface_a_probe_serves_all_the_same_and_says_so(place: list[str], said: str) -> None:
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups"]
    if subprocess.run([*unprivileged, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot become an unprivileged user: run as root")
    command = [*unprivileged, PROBE, "serve", "--listen", "127.0.0.1:0", "--until-eof", *place]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        driven = [*unprivileged, PROBE, "pingpong", "--peer", ready["listen"], "--samples", "50"]
        done = subprocess.run(driven, **TEXT)
        _, complaint = server.communicate(timeout=10)
    assert (done.returncode, ready["name"]) == (0, None), done.stderr
    assert complaint.startswith("barewire-probe: this host is not found by name: ") and said in complaint
