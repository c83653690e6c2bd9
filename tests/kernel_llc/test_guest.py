# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The oracle itself: a Linux kernel in a guest speaks LLC with frames made by hand, and where it deviates from 802.2.

None of our LLC takes part. A deviation has a test because our peer relies on knowing it; README.md lists them all.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import pytest

from barewire.lab import Lab
from kernel_llc.conftest import Boot
from kernel_llc.guest import Guest, GuestFailed, order, pattern
from kernel_llc.image import Image

OUR_MAC = bytes.fromhex("020000770099")
ECHO, SINK, SMALL, DATAGRAM, CLOSING = 0x20, 0x24, 0x28, 0x2C, 0x30
UNBOUND, LATE = 0x34, 0x38
READ_MS = 300  # after which LATE looks at what it received
CLOSE_AFTER_BYTES = 10
MTU = 1500
SILENCE_S = 0.3
POLLS_MAX = 5

UI, XID, TEST, SABME, DISC, UA, DM, FRMR = 0x03, 0xAF, 0xE3, 0x6F, 0x43, 0x63, 0x0F, 0x87
P = 0x10  # P/F bit of a U PDU
RR, REJ = 0x01, 0x09
MODULUS = 128


@dataclass(frozen=True)
class Pdu:
    """A PDU as it was on the wire; the lowest bit of `ssap` tells a response from a command."""

    dsap: int
    ssap: int
    control: bytes
    information: bytes

    @property
    def summary(self) -> tuple[int, str]:
        return self.ssap, self.control.hex()


class Wire:
    """The test's end of the wire: sends and receives PDUs."""

    def __init__(self, guest: Guest) -> None:
        self._socket = guest.socket()
        self._guest_mac = guest.mac
        self.ended: set[int] = set()  # SAPs of earlier tests, whose connections a failed test leaves open

    def send(
        self, dsap: int, ssap: int, *control: int, information: bytes = b"", destination: bytes | None = None
    ) -> None:
        pdu = bytes((dsap, ssap, *control)) + information
        frame = (destination or self._guest_mac) + OUR_MAC + len(pdu).to_bytes(2, "big") + pdu
        self._socket.send(frame.ljust(60, b"\0"))

    def receive(self, timeout_s: float = 2.0) -> Pdu | None:
        """Return the next PDU that is not for an earlier test; None after silence."""
        self._socket.settimeout(timeout_s)
        while True:
            try:
                frame = self._socket.recv(2000)
            except TimeoutError:
                return None
            assert frame[:12] == OUR_MAC + self._guest_mac
            pdu = frame[14 : 14 + int.from_bytes(frame[12:14], "big")]
            if pdu[0] not in self.ended:
                break
        octets = 1 if pdu[2] & 3 == 3 else 2
        return Pdu(pdu[0], pdu[1], pdu[2 : 2 + octets], pdu[2 + octets :])

    def receive_all(self, silence_s: float = SILENCE_S) -> list[Pdu]:
        pdus = []
        while (pdu := self.receive(silence_s)) is not None:
            pdus.append(pdu)
        return pdus

    def answer(self, silence_s: float = 2.0) -> tuple[int, str]:
        """Return the summary of the next PDU."""
        pdu = self.receive(silence_s)
        assert pdu is not None, "the kernel is silent"
        return pdu.summary


@pytest.fixture(scope="module")
def guest(boot: Boot) -> Iterator[Guest]:
    orders = [
        order("echo", sap=ECHO),
        order("echo", sap=SINK, echo=0),
        order("echo", sap=SMALL, echo=0, rcvbuf=2304, read_ms=2000),
        order("datagram", sap=DATAGRAM),
        order("close-after", sap=CLOSING, bytes=CLOSE_AFTER_BYTES),
        order("refuse", sap=UNBOUND),
        order("echo", sap=LATE, read_ms=READ_MS),
    ]
    with boot(*orders) as running:
        for number in range(1, len(orders) + 1):
            running.wait("listening", number)
        yield running


@pytest.fixture(scope="module")
def wire_once(guest: Guest) -> Wire:
    return Wire(guest)


@pytest.fixture
def wire(wire_once: Wire) -> Wire:
    wire_once.receive_all(0.01)
    return wire_once


_unused_saps = count(0x46, 2)


@pytest.fixture
def ours(wire_once: Wire) -> Iterator[int]:
    """Return a SAP for our end that no test has used: the kernel remembers pairs of addresses (see below)."""
    sap = next(_unused_saps)
    yield sap
    wire_once.ended.add(sap)


def connect(wire: Wire, guest: Guest, sap: int, ours: int) -> dict[str, object]:
    """Open a connection to a server of the guest and return its record of it."""
    wire.send(sap, ours, SABME | P)
    assert wire.answer() == (sap | 1, f"{UA | P:02x}")
    return guest.wait("accepted", peer_sap=ours)


def disconnect(wire: Wire, guest: Guest, sap: int, ours: int) -> dict[str, object]:
    """Close a connection and return the guest's record of its end; what was on its way before the UA is skipped."""
    wire.send(sap, ours, DISC | P)
    while wire.answer() != (sap | 1, f"{UA | P:02x}"):
        pass
    return guest.wait("closed", peer_sap=ours)


# Type 1


@pytest.mark.parametrize("poll", [0, P])
@pytest.mark.parametrize("sap", [0, DATAGRAM])
def test_a_test_command_is_answered_with_its_information_and_f_set_whatever_p_was(
    wire: Wire, sap: int, poll: int
) -> None:
    wire.send(sap, 0x44, TEST | poll, information=b"barewire")
    assert wire.receive() == Pdu(0x44, sap | 1, bytes([TEST | P]), b"barewire")


@pytest.mark.parametrize(("sap", "information"), [(0, "8103fe"), (DATAGRAM, "810300")])
def test_an_xid_command_is_answered_by_the_station_with_window_127_and_by_a_sap_with_window_0(
    wire: Wire, sap: int, information: str
) -> None:
    wire.send(sap, 0x44, XID | P, information=bytes.fromhex("810100"))
    assert wire.receive() == Pdu(0x44, sap | 1, bytes([XID | P]), bytes.fromhex(information))


def test_a_datagram_is_echoed_as_ui(wire: Wire, guest: Guest, ours: int) -> None:
    wire.send(DATAGRAM, ours, UI, information=b"unacknowledged")
    assert wire.receive() == Pdu(ours, DATAGRAM, bytes([UI]), b"unacknowledged")
    assert guest.wait("datagram", peer_sap=ours)["kind"] == "UI"


@pytest.mark.parametrize("sap", [DATAGRAM | 1, 0xFF, ECHO, UNBOUND])
def test_deviation_group_and_global_saps_and_those_without_a_datagram_socket_do_not_answer(
    wire: Wire, sap: int
) -> None:
    wire.send(sap, 0x44, TEST | P, information=b"anyone?")
    assert wire.receive_all() == []


def test_deviation_type_3_is_silently_dropped(wire: Wire) -> None:
    wire.send(DATAGRAM, 0x44, 0x67, information=b"acknowledge me")
    assert wire.receive_all() == []


# Type 2, the guest as the server


def test_a_connection_opens_echoes_and_closes(wire: Wire, guest: Guest, ours: int) -> None:
    assert connect(wire, guest, ECHO, ours)["peer"] == OUR_MAC.hex(":")
    wire.send(ECHO, ours, 0, 0, information=b"over frames")
    acknowledgement, echo = wire.receive(), wire.receive()
    assert acknowledgement == Pdu(ours, ECHO | 1, bytes([RR, 1 << 1]), b"")
    assert echo == Pdu(ours, ECHO, bytes([0, 1 << 1]), b"over frames")
    wire.send(ECHO, ours | 1, RR, 1 << 1)
    closed = disconnect(wire, guest, ECHO, ours)
    assert (closed["by"], closed["bytes_received"], closed["bytes_sent"]) == ("peer", 11, 11)


def test_eight_connections_at_once_are_served_each_on_its_own(wire: Wire, guest: Guest) -> None:
    saps = [next(_unused_saps) for _ in range(8)]
    for sap in saps:
        connect(wire, guest, ECHO, sap)
    for sap in saps:
        wire.send(ECHO, sap, 0, 0, information=bytes([sap]))
    echoes = {pdu.dsap: pdu.information for pdu in wire.receive_all() if pdu.information}
    assert echoes == {sap: bytes([sap]) for sap in saps}
    for sap in saps:
        disconnect(wire, guest, ECHO, sap)


def test_a_server_that_closes_after_some_bytes_sends_disc(wire: Wire, guest: Guest, ours: int) -> None:
    connect(wire, guest, CLOSING, ours)
    wire.send(CLOSING, ours, 0, 0, information=bytes(CLOSE_AFTER_BYTES))
    assert [pdu.summary for pdu in wire.receive_all()][-1] == (CLOSING, f"{DISC | P:02x}")
    wire.send(CLOSING, ours | 1, UA | P)
    closed = guest.wait("closed", peer_sap=ours)
    assert (closed["by"], closed["bytes_received"]) == ("self", CLOSE_AFTER_BYTES)


def test_a_gap_is_rejected_once_and_filled(wire: Wire, guest: Guest, ours: int) -> None:
    connect(wire, guest, SINK, ours)
    for number in (1, 2):
        wire.send(SINK, ours, number << 1, 0, information=b"early")
    assert [pdu.summary for pdu in wire.receive_all()] == [(SINK | 1, f"{REJ:02x}00")]
    wire.send(SINK, ours, 0, 1, information=b"missing")
    assert wire.answer() == (SINK | 1, f"{RR:02x}03")
    assert disconnect(wire, guest, SINK, ours)["bytes_received"] == len(b"missing")


def test_deviation_an_unbound_sap_is_silent_where_dm_belongs(wire: Wire, ours: int) -> None:
    wire.send(UNBOUND, ours, SABME | P)
    assert wire.receive_all() == []


def test_deviation_acknowledgements_come_rarer_and_rarer_and_no_timer_sends_the_last(
    wire: Wire, guest: Guest, ours: int
) -> None:
    """So whoever waits for an acknowledgement must poll."""
    connect(wire, guest, SINK, ours)
    acknowledgements: list[Pdu] = []
    for number in range(40):
        wire.send(SINK, ours, number << 1, 0, information=b"x")
        acknowledgements += wire.receive_all(0.01)
    acknowledgements += wire.receive_all(1.0)  # an emulated processor may lag behind
    numbers = [0] + [pdu.control[1] >> 1 for pdu in acknowledgements]
    gaps, last = [after - before for before, after in pairwise(numbers)], numbers[-1]
    assert gaps == sorted(gaps) and gaps[0] == 1 and gaps[-1] > 3 and last < 40
    wire.send(SINK, ours, RR, 1)
    assert wire.answer() == (SINK | 1, f"{RR:02x}{40 << 1 | 1:02x}")
    disconnect(wire, guest, SINK, ours)


def test_deviation_a_full_receive_buffer_drops_frames_without_rnr(wire: Wire, guest: Guest, ours: int) -> None:
    """The server reads only after two seconds; until then a poll tells what has to be sent again."""
    connect(wire, guest, SMALL, ours)
    for number in range(8):
        wire.send(SMALL, ours, number << 1, 0, information=bytes(1000))
    answers: list[bytes] = []
    polls = 0
    while not answers or not answers[-1][1] & 1:
        pdu = wire.receive() if polls else None
        if pdu is not None:
            answers.append(pdu.control)
        else:  # nothing yet, or a poll lost: the full buffer drops it too while the server holds its socket
            assert polls < POLLS_MAX, "the kernel is silent"
            wire.send(SMALL, ours, RR, 1)
            polls += 1
    assert {answer[0] for answer in answers} <= {RR, REJ}
    assert answers[-1][0] == RR and 0 < answers[-1][1] >> 1 < 8
    disconnect(wire, guest, SMALL, ours)


def test_deviation_what_a_program_sends_while_its_kernel_rejects_is_lost_and_nobody_is_told(
    wire: Wire, guest: Guest, ours: int
) -> None:
    """The program sends for the first time while a PDU is missing, for the second time after that has come."""
    connect(wire, guest, LATE, ours)
    wire.send(LATE, ours, 0 << 1, 0, information=b"first")
    wire.send(LATE, ours, 2 << 1, 0, information=b"ahead")
    while_rejecting = [pdu.summary for pdu in wire.receive_all(2 * READ_MS / 1000)]
    assert while_rejecting == [(LATE | 1, f"{RR:02x}02"), (LATE | 1, f"{REJ:02x}02")], "no echo"
    wire.send(LATE, ours, 1 << 1, 0, information=b"second")
    assert wire.answer() == (LATE | 1, f"{RR:02x}04")
    echo = wire.receive()
    assert echo is not None and (echo.control, echo.information) == (bytes([0 << 1, 2 << 1]), b"second")
    wire.send(LATE, ours | 1, RR, 1 << 1)
    closed = disconnect(wire, guest, LATE, ours)
    assert closed["bytes_received"] == closed["bytes_sent"] == len(b"firstsecond")


def test_deviation_a_pdu_received_before_is_rejected_like_one_ahead(wire: Wire, guest: Guest, ours: int) -> None:
    """So a peer sends nothing again unless it is sure that it was lost, or what the program sends then is lost."""
    connect(wire, guest, SINK, ours)
    wire.send(SINK, ours, 0, 0, information=b"once")
    assert wire.answer() == (SINK | 1, f"{RR:02x}02")
    wire.send(SINK, ours, 0, 0, information=b"once")
    assert wire.answer() == (SINK | 1, f"{REJ:02x}02")
    assert disconnect(wire, guest, SINK, ours)["bytes_received"] == len(b"once")


def test_deviation_a_repeated_i_pdu_has_the_n_r_of_its_first_time(wire: Wire, guest: Guest, ours: int) -> None:
    connect(wire, guest, ECHO, ours)
    for number in (0, 1):
        wire.send(ECHO, ours, number << 1, 0, information=b"x")
        while (pdu := wire.receive()) is not None and pdu.control[0] != number << 1:
            pass
        assert pdu is not None, "no echo"
    wire.receive_all(SILENCE_S / 2)
    wire.send(ECHO, ours | 1, REJ, 1)
    repeated = wire.receive()
    assert repeated is not None and repeated.control == bytes([0, 1 << 1]), "V(R) is 2 since"
    wire.receive_all(SILENCE_S / 2)
    wire.send(ECHO, ours | 1, RR, 2 << 1)
    disconnect(wire, guest, ECHO, ours)


def test_deviation_an_unsolicited_ua_is_answered_by_frmr_without_a_reason(wire: Wire, guest: Guest, ours: int) -> None:
    connect(wire, guest, ECHO, ours)
    wire.send(ECHO, ours | 1, UA)
    frmr = wire.receive()
    assert frmr is not None and frmr.control[0] & ~P == FRMR
    # Rejected control field, V(S), V(R) with the C/R bit, reasons: C/R is 0 though a response was rejected.
    assert frmr.information[:4] == bytes([UA, 0, 0, 0]) and frmr.information[4] & 0x1F == 0
    wire.send(ECHO, ours, SABME | P)
    assert wire.answer() == (ECHO | 1, f"{UA | P:02x}")
    disconnect(wire, guest, ECHO, ours)


def test_deviation_after_a_stray_disc_a_pair_of_addresses_connects_but_is_never_accepted(
    wire: Wire, guest: Guest, ours: int
) -> None:
    """So a peer never uses a SAP twice unless it is sure that nothing of the old connection is on its way."""
    wire.send(ECHO, ours, DISC | P)
    assert wire.answer() == (ECHO | 1, f"{DM | P:02x}")
    wire.send(ECHO, ours, SABME | P)
    assert wire.answer() == (ECHO | 1, f"{UA | P:02x}")
    with pytest.raises(GuestFailed, match="no record"):
        guest.wait("accepted", peer_sap=ours, timeout_s=SILENCE_S)


def test_deviation_a_poll_answered_by_an_i_response_draws_an_rr_of_three_octets(
    wire: Wire, guest: Guest, ours: int
) -> None:
    """So a peer answers polls with S PDUs, and drops S PDUs without their second control octet."""
    connect(wire, guest, ECHO, ours)
    wire.send(ECHO, ours, 0, 0, information=b"a")
    assert [wire.answer() for _ in range(3)][-1] == (ECHO, f"{RR:02x}03"), "after RR and I, the poll when T1 ran out"
    wire.send(ECHO, ours | 1, 1 << 1, 1, information=b"b")
    pdu = wire.receive()
    assert pdu is not None and (pdu.ssap, pdu.control) == (ECHO | 1, bytes([RR]))
    disconnect(wire, guest, ECHO, ours)


# Type 2, the guest as the client


def test_the_guest_connects_sends_verifies_the_echo_and_closes(wire: Wire, guest: Guest, ours: int) -> None:
    number = guest.order("connect", mac=OUR_MAC.hex(":"), sap=ours, bytes=100_000, seed=7)
    received = serve_echo(wire, ours)
    assert b"".join(received) == pattern(7, 100_000)
    assert max(map(len, received)) == MTU - 4, "the whole MTU, less the header of an I PDU"
    done = guest.wait("done", number)
    assert done["ok"] and done["bytes_received"] == 100_000


def test_deviation_after_a_rej_only_the_send_buffer_bounds_what_is_under_way(
    wire: Wire, guest: Guest, ours: int
) -> None:
    """Its window was 3 and is 1 after the REJ; then it polls no more, and sends far beyond either."""
    number = guest.order("connect", mac=OUR_MAC.hex(":"), sap=ours, bytes=200_000, echo=0)
    sabme = wire.receive()
    assert sabme is not None and sabme.control == bytes([SABME | P])
    theirs = sabme.ssap
    wire.send(theirs, ours | 1, UA | P)
    for window, acknowledged, function in ((2, 2, RR), (3, 2, REJ)):
        under_way = [wire.receive() for _ in range(window)]
        assert [pdu.control[1] & 1 for pdu in under_way if pdu] == [0] * (window - 1) + [1], "the last one polls"
        wire.send(theirs, ours | 1, function, acknowledged << 1 | 1)
    unlimited = [pdu.control for pdu in wire.receive_all()]
    assert all(not control[1] & 1 for control in unlimited)
    highest = max(control[0] >> 1 for control in unlimited)
    assert 30 < highest - 2 < MODULUS // 2 - 1, "guest.py says how large the send buffer is"
    wire.send(theirs, ours | 1, RR, highest + 1 << 1)
    while (pdu := wire.receive()) is not None and pdu.control != bytes([DISC | P]):
        if pdu.control[0] & 1 == 0:
            highest = pdu.control[0] >> 1
        wire.send(theirs, ours | 1, RR, (highest + 1) % MODULUS << 1 | pdu.control[1] & 1)
    wire.send(theirs, ours | 1, UA | P)
    assert guest.wait("done", number)["ok"]


def test_the_guest_finds_a_wrong_byte_in_the_echo(wire: Wire, guest: Guest, ours: int) -> None:
    number = guest.order("connect", mac=OUR_MAC.hex(":"), sap=ours, bytes=5000)
    serve_echo(wire, ours, corrupted=1)
    done = guest.wait("done", number)
    assert not done["ok"] and done["wrong_at"] == MTU - 4


def test_the_guest_gives_up_a_connection_that_is_refused(wire: Wire, guest: Guest, ours: int) -> None:
    number = guest.order("connect", mac=OUR_MAC.hex(":"), sap=ours, bytes=1)
    sabme = wire.receive()
    assert sabme is not None and sabme.control == bytes([SABME | P])
    wire.send(sabme.ssap, ours | 1, DM | P)
    assert guest.wait("failed", number)["error"] == "Software caused connection abort"


def test_the_guest_gives_up_after_three_unanswered_sabme_one_second_apart(wire: Wire, guest: Guest, ours: int) -> None:
    number = guest.order("connect", mac=OUR_MAC.hex(":"), sap=ours, bytes=1)
    assert [pdu.control for pdu in wire.receive_all(1.5)] == [bytes([SABME | P])] * 3
    # Three seconds of a clock that the guest set by ours while it booted, a third wrong if that was beside much else.
    assert 2000 < guest.wait("failed", number)["ms"] < 6000


def serve_echo(wire: Wire, ours: int, corrupted: int | None = None) -> list[bytes]:
    """Accept one connection and echo every I PDU until DISC; return their information, `corrupted` being falsified.

    Nothing is lost on this wire, so that what comes in order is all that is handled.
    """
    received: list[bytes] = []
    while (pdu := wire.receive()) is not None:
        theirs, poll = pdu.ssap & ~1, pdu.control[-1] & (pdu.ssap & 1 ^ 1)
        if pdu.control in (bytes([SABME | P]), bytes([DISC | P])):
            wire.send(theirs, ours | 1, UA | P)
            if pdu.control == bytes([DISC | P]):
                return received
        elif pdu.control[0] & 1 == 0:
            assert pdu.control[0] >> 1 == len(received) % MODULUS
            number = len(received) % MODULUS
            expected = (number + 1) % MODULUS << 1
            echo = bytes([pdu.information[0] ^ 1]) + pdu.information[1:] if number == corrupted else pdu.information
            received.append(pdu.information)
            wire.send(theirs, ours | 1, RR, expected | poll)
            wire.send(theirs, ours, number << 1, expected, information=echo)
        elif poll:
            wire.send(theirs, ours | 1, RR, len(received) % MODULUS << 1 | 1)
    raise AssertionError("the kernel fell silent before it closed")


# The guest itself


def test_frames_are_lost_and_delayed_as_ordered(wire: Wire, guest: Guest) -> None:
    guest.wait("set", guest.order("netem", loss=30))
    for number in range(200):
        wire.send(0, 0x44, TEST, information=bytes([number]))
    assert 100 < len(wire.receive_all()) < 180
    guest.wait("set", guest.order("netem", delay_us=200_000))
    begun = time.monotonic()
    wire.send(0, 0x44, TEST)
    # By the guest's clock: see above.
    assert wire.receive() is not None and time.monotonic() - begun > 0.1
    guest.wait("set", guest.order("netem"))


def test_timeouts_can_be_changed_and_connections_are_listed(wire: Wire, guest: Guest, ours: int) -> None:
    guest.wait("set", guest.order("timeouts", ack=1, p=2))
    connect(wire, guest, ECHO, ours)
    number = guest.order("status")
    guest.wait("status", number)
    lines = [guest.wait("line", number)["text"] for _ in range(4)]
    assert any(f"{OUR_MAC.hex(':')}@{ours:02X}" in line for line in lines)
    disconnect(wire, guest, ECHO, ours)


def test_an_order_that_fails_is_an_error_with_the_guests_reason(guest: Guest) -> None:
    with pytest.raises(GuestFailed, match="Address already in use"):
        guest.wait("listening", guest.order("echo", sap=ECHO))


@pytest.mark.matrix  # one more boot, of what only these tests use
def test_a_guest_that_dies_is_an_error_and_it_leaves_neither_interface_nor_process(image: Image) -> None:
    """The interface lasts as long as the process that holds its descriptor."""
    with Lab.up("pair") as lab:
        with Guest(image, lab, order("echo", sap=ECHO)) as guest:
            assert interfaces(lab) == ["eth0", "lo", guest.interface]
            guest.kill()
            with pytest.raises(GuestFailed, match="has ended"):
                guest.wait("accepted")
        deadline = time.monotonic() + 5
        while interfaces(lab) != ["eth0", "lo"]:
            assert time.monotonic() < deadline


def interfaces(lab: Lab) -> list[str]:
    listed = lab.run("h1", ["ls", "/sys/class/net"], capture_output=True, text=True, check=True)
    return str(listed.stdout).split()
