# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Our LLC station and a Linux kernel's talk to each other: `barewire-probe station` against AF_LLC sockets.

Every byte is compared by whoever sent it first. Each connection has a SAP of its own at our end, since the kernel
remembers pairs of addresses (README.md, 8). What its program sends while the kernel rejects is lost (23): where frames
to it are lost, data flows one way at a time (`hold`), or there is no second I PDU behind the lost one (`--ahead`).
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from conftest import PROBE

from barewire.lab import Lab
from kernel_llc.conftest import Boot
from kernel_llc.guest import Guest, Record, order

ECHO, HOLDING, CLOSING, UNBOUND = 0x20, 0x24, 0x30, 0x34
BYTES = 1_000_000
CLOSE_AFTER_BYTES = 20_000
INFORMATION_MAX = 1496  # of an I PDU at MTU 1500
_unused_saps = count(0x40, 2)


class Ours:
    """Our end of the wire: the probe as a station on the guest's interface."""

    def __init__(self, lab: Lab, guest: Guest) -> None:
        self._lab, self._guest = lab, guest
        shown = lab.run(
            "h1", ["cat", f"/sys/class/net/{guest.interface}/address"], capture_output=True, text=True, check=True
        )
        self.mac = shown.stdout.strip()

    def start(self, role: str, sap: int, *more: str) -> "subprocess.Popen[str]":
        command = [PROBE, "station", role, "--interface", self._guest.interface, "--sap", hex(sap), *more]
        return self._lab.popen("h1", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def connect(self, remote: int, *more: str, size: int = BYTES) -> "subprocess.Popen[str]":
        peer = ["--peer", self._guest.mac.hex(":"), "--remote-sap", hex(remote), "--bytes", str(size)]
        return self.start("connect", next(_unused_saps), *peer, *more)

    @contextmanager
    def echo(self, sap: int, *more: str) -> Iterator["subprocess.Popen[str]"]:
        """Run an echo station; it is ended with the block if it has not ended by then."""
        station = self.start("echo", sap, *more)
        assert station.stdout is not None
        try:
            assert json.loads(station.stdout.readline())["event"] == "listening"
            yield station
        finally:
            station.terminate()
            station.communicate(timeout=10)


def ended(station: "subprocess.Popen[str]", timeout_s: float = 30.0) -> tuple[int, list[Record], str]:
    """Wait for a station's end; return its exit code, records and complaint."""
    try:
        out, complaint = station.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        station.terminate()
        out, complaint = station.communicate(timeout=10)
        pytest.fail(f"still running after {timeout_s} s: {out} {complaint}")
    return station.returncode, [json.loads(line) for line in out.splitlines()], complaint


def assert_echoed(station: "subprocess.Popen[str]", size: int = BYTES) -> Record:
    code, records, complaint = ended(station)
    done = records[-1]
    assert (code, done["sent"], done["received"], done["intact"]) == (0, size, size, True), (done, complaint)
    assert done["cause"] == "requested" and done["counters"]["frmr_received"] == done["counters"]["frmr_sent"] == 0
    return done


@pytest.fixture(scope="module")
def guest(boot: Boot) -> Iterator[Guest]:
    orders = [
        order("echo", sap=ECHO, limit=16, retry=20),
        order("echo", sap=HOLDING, hold=BYTES, retry=20),
        order("close-after", sap=CLOSING, bytes=CLOSE_AFTER_BYTES),
    ]
    with boot(*orders) as guest:
        for number in range(1, len(orders) + 1):
            guest.wait("listening", number)
        yield guest


@pytest.fixture(scope="module")
def ours(lab: Lab, guest: Guest) -> Ours:
    return Ours(lab, guest)


def test_a_kernels_station_is_listed_without_a_name(lab: Lab, guest: Guest) -> None:
    """It knows nothing of names, and is found on the segment by what it answers."""
    command = [PROBE, "hosts", "--interface", guest.interface, "--json"]
    done = lab.run("h1", command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    this, kernel = found["hosts"]
    assert this["name"] == "h1" and this["is_this_host"]
    assert (kernel["name"], kernel["mac"], kernel["interface"]) == (None, guest.mac.hex(":"), guest.interface)
    assert kernel["round_trip_ns"] > 1000 and sum(found["ignored"].values()) == 0


def test_the_kernel_answers_xid_and_test_of_full_size(ours: Ours, guest: Guest) -> None:
    code, records, complaint = ended(ours.start("ask", next(_unused_saps), "--peer", guest.mac.hex(":")))
    assert code == 0, complaint
    xid, test = records
    assert xid["said"] == {"class": 3, "window": 127} and xid["from"] == guest.mac.hex(":")
    assert (test["bytes"], test["intact"]) == (INFORMATION_MAX + 1, True)


def test_we_connect_and_a_megabyte_comes_back_closed_by_us(ours: Ours, guest: Guest) -> None:
    assert_echoed(ours.connect(ECHO))
    closed = guest.wait("closed")
    assert (closed["by"], closed["bytes_received"], closed["bytes_sent"]) == ("peer", BYTES, BYTES)


def test_the_kernel_connects_and_gets_its_megabyte_back(ours: Ours, guest: Guest) -> None:
    sap = next(_unused_saps)
    with ours.echo(sap, "--connections", "1") as station:
        number = guest.order("connect", mac=ours.mac, sap=sap, bytes=BYTES, seed=7, retry=20)
        done = guest.wait("done", number, timeout_s=30)
        code, records, complaint = ended(station)
    closed = records[-1]
    assert (code, closed["cause"]) == (0, "peer disconnected"), complaint
    assert done["ok"] and done["bytes_received"] == closed["received"] == closed["sent"] == BYTES


def test_our_server_closes_once_its_echo_is_acknowledged(ours: Ours, guest: Guest) -> None:
    sap = next(_unused_saps)
    with ours.echo(sap, "--connections", "1", "--close-after", str(BYTES)) as station:
        number = guest.order("connect", mac=ours.mac, sap=sap, bytes=BYTES, seed=7, wait=1, retry=20)
        done = guest.wait("done", number, timeout_s=30)
        assert done["ok"] and done["by"] == "peer"
        assert ended(station)[1][-1]["cause"] == "requested"


def test_the_kernels_server_closes_early_and_we_say_so(ours: Ours, guest: Guest) -> None:
    code, records, complaint = ended(ours.connect(CLOSING))
    assert (code, records[-1]["cause"], records[-1]["intact"]) == (1, "peer disconnected", True)
    assert "the peer ended the LLC connection after" in complaint
    closed = guest.wait("closed")
    assert (closed["by"], closed["bytes_received"]) == ("self", CLOSE_AFTER_BYTES)


def test_we_may_disconnect_in_the_middle_of_a_transfer(ours: Ours, guest: Guest) -> None:
    code, records, complaint = ended(ours.connect(ECHO, "--close-after", str(CLOSE_AFTER_BYTES)))
    assert (code, records[-1]["cause"], records[-1]["intact"]) == (0, "requested", True), complaint
    assert guest.wait("closed")["by"] in ("peer", "error")


def test_nobody_at_a_sap_is_an_error_in_bounded_time(ours: Ours) -> None:
    begun = time.monotonic()
    code, records, complaint = ended(ours.connect(UNBOUND))
    assert (code, records) == (1, []) and "is its service access point bound?" in complaint
    assert time.monotonic() - begun < 7


def test_a_connection_beyond_those_wanted_is_refused(ours: Ours, guest: Guest) -> None:
    sap = next(_unused_saps)
    with ours.echo(sap, "--connections", "1"):
        first = guest.order("connect", mac=ours.mac, sap=sap, bytes=1, wait=1)
        guest.wait("connected", first)
        second = guest.order("connect", mac=ours.mac, sap=sap, bytes=1)
        assert guest.wait("failed", second)["error"] == "Software caused connection abort"


def test_eight_connections_at_once_from_us(ours: Ours) -> None:
    for station in [ours.connect(ECHO, "--seed", str(seed), size=100_000) for seed in range(8)]:
        assert_echoed(station, 100_000)


def test_eight_connections_at_once_to_us(ours: Ours, guest: Guest) -> None:
    sap = next(_unused_saps)
    with ours.echo(sap):
        fields = {"mac": ours.mac, "sap": sap, "bytes": 100_000, "retry": 20}
        numbers = [guest.order("connect", seed=seed, **fields) for seed in range(1, 9)]
        for number in numbers:
            assert guest.wait("done", number, timeout_s=30)["ok"]


def test_frames_are_lost_both_ways_with_one_under_way_each(ours: Ours) -> None:
    """Each of its I PDUs that the kernel must repeat costs a second of its timer."""
    size = 100 * INFORMATION_MAX
    done = assert_echoed(ours.connect(ECHO, "--loss", "0.03", "--ahead", str(INFORMATION_MAX), size=size), size)
    assert done["frames_lost_on_purpose"] > 0 and done["counters"]["information_repeated"] > 0


def test_frames_are_lost_both_ways_and_our_megabyte_comes_back(ours: Ours) -> None:
    """While the kernel's window is down to one frame, as after its timer has run out, none arrives ahead of another."""
    for _ in range(3):
        done = assert_echoed(ours.connect(HOLDING, "--loss", "0.01"))
        assert done["frames_lost_on_purpose"] > 0 and done["counters"]["information_repeated"] > 0
        if done["counters"]["received_ahead"] > 0:
            return
    raise AssertionError(f"no frame arrived ahead of a lost one: {done['counters']}")


def test_frames_are_lost_both_ways_and_the_kernel_gets_its_megabyte_back(ours: Ours, guest: Guest) -> None:
    sap = next(_unused_saps)
    with ours.echo(sap, "--connections", "1", "--hold", str(BYTES), "--loss", "0.01") as station:
        number = guest.order("connect", mac=ours.mac, sap=sap, bytes=BYTES, seed=7, retry=20)
        done = guest.wait("done", number, timeout_s=60)
        code, records, complaint = ended(station)
    closed = records[-1]
    assert (code, closed["cause"], closed["reset"]) == (0, "peer disconnected", None), complaint
    assert done["ok"] and done["bytes_received"] == closed["received"] == closed["sent"] == BYTES
    assert closed["counters"]["information_repeated"] > 0 and closed["counters"]["received_ahead"] > 0


def test_frames_of_the_kernels_are_lost_while_data_flows_both_ways(ours: Ours, guest: Guest) -> None:
    """Few enough bytes ahead that its repetitions, with the N(R) of their first time (18), are never far behind."""
    guest.wait("set", guest.order("netem", loss=1))
    try:
        done = assert_echoed(ours.connect(ECHO, "--ahead", str(16 * INFORMATION_MAX)))
    finally:
        guest.wait("set", guest.order("netem"))
    assert done["counters"]["received_ahead"] > 0
