# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The programs at a link's ports, run by bpf_machine.py: frames leave when a wire's last bit would."""

import struct

import pytest
from bpf_machine import Bucket, Frame, Machine

from barewire.lab import LinkSpec
from barewire.lab.bpf import Assembler, Helper, Register
from barewire.lab.plan import make_wire_queue
from barewire.lab.wire_program import (
    CABLE_COST_NS,
    HOLD_NS_MAX,
    LEFT,
    LOST_NS,
    MARGIN_NS,
    PORT_BYTES,
    QUEUED,
    Forwarding,
    Maps,
    Port,
    entry,
    leave,
    resize,
)

MAPS = Maps(ports=1, stolen=2)
PEER, QUEUE, BEHIND = 7, 8, 9
GIGABIT = 10**9
# Frames with their Ethernet header
FULL, SHORT = 1514, 20
DUMMY = 1 << 29


class Link:
    """Both directions of a link, and the bucket of the first."""

    def __init__(self, rate_bit_s: int = GIGABIT, forwarding: Forwarding = Forwarding.PEER) -> None:
        self.rate_bit_s = rate_bit_s
        shaper = make_wire_queue(rate_bit_s, LinkSpec(rate_bit_s))
        self.ports = [
            Port(
                number, 1 - number, forwarding, PEER, QUEUE, BEHIND, rate_bit_s, shaper.burst_bytes, shaper.queue_bytes
            )
            for number in (0, 1)
        ]
        self.entries = [entry(port, MAPS) for port in self.ports]
        self.machine = Machine({1: [bytearray(PORT_BYTES), bytearray(PORT_BYTES)], 2: [bytearray(8)]})
        self.bucket = Bucket(rate_bit_s / 8e9, shaper.burst_bytes + 24)

        self.leaving_at: list[float] = []

    def queued_until(self, now_ns: float) -> int:
        """Return how many frames have left the queue."""
        return sum(at <= now_ns for at in self.leaving_at)

    def send(self, length: int = FULL, direction: int = 0) -> float:
        """Send a frame; return when it leaves the port or the bucket."""
        begin = self.machine.now_ns
        frame = Frame(length)
        self.machine.run(self.entries[direction], frame)
        if self.machine.redirected == PEER:
            return self.machine.now_ns
        assert self.machine.redirected == QUEUE
        for mark in self.machine.clones:
            assert mark & DUMMY
            self.bucket.passes_at(begin, wire_bytes(mark & (DUMMY - 1)))
        at = self.bucket.passes_at(begin, wire_bytes(length))
        if direction == 0:
            self.leaving_at.append(at)
        return at

    def rest(self, ns: int) -> None:
        self.machine.now_ns += ns

    def field(self, offset: int) -> int:
        return int(struct.unpack_from("=Q", self.machine.maps[1][0], offset)[0])

    def wire_ns(self, length: int = FULL) -> float:
        return wire_bytes(length) * 8e9 / self.rate_bit_s


def wire_bytes(length: int) -> int:
    return max(84, length + 24)


@pytest.mark.parametrize("rate_bit_s", [300_000_000, GIGABIT, 10 * GIGABIT])
@pytest.mark.parametrize("length", [SHORT, 60, FULL])
def test_a_frame_on_an_idle_wire_is_held_for_its_time(rate_bit_s: int, length: int) -> None:
    link = Link(rate_bit_s)
    begin = link.machine.now_ns
    held_ns = link.send(length) - begin
    assert link.wire_ns(length) - CABLE_COST_NS <= held_ns <= link.wire_ns(length) + 60


def test_each_frame_of_a_ping_pong_is_held() -> None:
    """The answer tells the program that its sender was not held up in what followed."""
    link = Link(10 * GIGABIT)
    for turn in range(20):
        begin = link.machine.now_ns
        assert link.send(direction=turn % 2) - begin >= link.wire_ns() - CABLE_COST_NS
        link.rest(700)


def test_a_burst_leaves_at_the_wires_pace() -> None:
    """First by the clock, then, with the core free, by a bucket that is as empty as it must be."""
    link = Link()
    begin = link.machine.now_ns
    ends = []
    for _ in range(20):
        ends.append(link.send() - begin)
        link.rest(900)
    for number, end in enumerate(ends, 1):
        assert number * link.wire_ns() - CABLE_COST_NS <= end <= number * link.wire_ns() + 200
    held = sum(end <= HOLD_NS_MAX for end in ends)
    assert held == 6 and link.field(QUEUED) == 14
    assert link.machine.now_ns - begin < 7 * link.wire_ns() + 20_000, "the core is free for most of the burst"


@pytest.mark.parametrize("rate_bit_s", [10_000_000, 100_000_000])
@pytest.mark.parametrize("pause_us", [0, 700, 100_000])
def test_a_long_frame_leaves_the_bucket_a_margin_early(rate_bit_s: int, pause_us: int) -> None:
    """However full the bucket is; the clock makes up for the margin."""
    link = Link(rate_bit_s)
    end = link.send()
    for _ in range(3):
        link.machine.maps[1][0][LEFT : LEFT + 8] = link.machine.maps[1][0][QUEUED : QUEUED + 8]
        link.machine.now_ns = int(end) + MARGIN_NS + 1000 * pause_us
        begin = link.machine.now_ns
        end = link.send()
        assert end - begin == pytest.approx(link.wire_ns() - MARGIN_NS, rel=0.002)
        assert link.machine.now_ns - begin < 1000


def test_the_last_frame_of_the_queue_is_held_until_its_end() -> None:
    link = Link(100_000_000)
    begin = link.machine.now_ns
    link.machine.now_ns = int(link.send())
    frame = Frame(FULL)
    link.machine.run(leave(link.ports[0], MAPS), frame)
    assert link.machine.redirected == PEER
    assert link.wire_ns() - CABLE_COST_NS <= link.machine.now_ns - begin <= link.wire_ns() + 200
    assert link.field(LEFT) == link.field(QUEUED) == 1


def test_dummies_get_their_length_and_end_behind_the_bucket() -> None:
    link = Link()
    assert link.machine.run(leave(link.ports[0], MAPS), Frame(FULL, mark=DUMMY | 500)) == 2
    assert link.field(LEFT) == 0
    lengths: list[int] = []

    class Resizing(Machine):
        def _call(self, code, helper, registers):  # type: ignore[no-untyped-def]
            if helper is Helper.SKB_CHANGE_TAIL:
                lengths.append(registers[2])
                return 0
            return super()._call(code, helper, registers)

    resizing = Resizing({})
    resizing.run(resize(link.ports[0], MAPS), Frame(FULL, mark=DUMMY | 500))
    assert lengths == [500] and resizing.redirected == QUEUE


@pytest.mark.parametrize("gap_ns", [400, 700, 1100])
def test_a_stream_fills_a_fast_wire_although_its_core_is_held(gap_ns: int) -> None:
    """At 10 Gb/s a core needs about as long for a frame as the wire: it loses the first frame's time, and no more."""
    link = Link(10 * GIGABIT)
    begin, count = link.machine.now_ns, 500
    for _ in range(count):
        end = link.send()
        link.rest(gap_ns)
    assert 0.999 * link.wire_ns() * count <= end - begin <= 1.01 * link.wire_ns() * count


def test_acknowledgements_do_not_make_a_stream_wait() -> None:
    """One for every second frame, while the core needs half of the wire's time: it gets ahead of the wire."""
    link = Link()
    begin, count = link.machine.now_ns, 200
    for number in range(count):
        end = link.send()
        link.machine.maps[1][0][LEFT : LEFT + 8] = struct.pack("=Q", link.queued_until(link.machine.now_ns))
        if number % 2:
            link.send(60, direction=1)
        link.rest(5000)
    assert end - begin <= 1.02 * link.wire_ns() * count


def test_what_a_pause_or_another_core_precedes_is_held_in_full() -> None:
    link = Link()
    link.send()
    for pause_ns, processor in ((100_000, 0), (100, 1)):
        link.rest(pause_ns)
        link.machine.processor = processor
        begin = link.machine.now_ns
        assert link.send() - begin >= link.wire_ns() - CABLE_COST_NS


def test_a_queue_that_lost_frames_is_forgotten_in_the_end() -> None:
    link = Link()
    link.machine.maps[1][0][QUEUED] = 3
    link.send()
    assert link.machine.redirected == PEER and link.field(LEFT) == 3, "long idle"
    link.machine.maps[1][0][QUEUED] = 4
    link.send()
    assert link.machine.redirected == QUEUE
    link.rest(2 * LOST_NS)
    link.send()
    assert link.machine.redirected == PEER


def test_a_flood_does_not_occupy_the_wire_for_longer_than_its_queue_holds() -> None:
    link = Link(10_000_000)
    for _ in range(300):
        link.send()
    begin = link.machine.now_ns
    ahead_ns = link.field(0) - begin
    assert ahead_ns <= link.ports[0].queue_ns + 2 * link.wire_ns()


def test_frames_from_the_queue_pass_their_port_and_lose_the_mark() -> None:
    for forwarding, verdict in ((Forwarding.EGRESS, 0), (Forwarding.INGRESS, -1)):
        link = Link(forwarding=forwarding)
        frame = Frame(FULL)
        link.machine.run(leave(link.ports[0], MAPS), frame)
        assert link.machine.redirected == PEER and frame.mark != 0
        begin = link.machine.now_ns
        assert link.machine.run(link.entries[0], frame) == verdict
        assert frame.mark == 0 and link.machine.now_ns == begin


def test_instructions_have_the_kernels_format() -> None:
    code = Assembler()
    code.compute(Register.R1, "=", -1)
    code.label("again")
    code.constant(Register.R2, 0x1_8000_0000)
    code.jump_if(Register.R1, "s<", Register.R2, "again")
    code.load(Register.R3, Register.R10, -8, bits=32)
    code.exit()
    expected = (
        "b7010000ffffffff",
        "1802000000000080",
        "0000000001000000",
        "cd21fdff00000000",
        "61a3f8ff00000000",
        "9500000000000000",
    )
    assert code.program().hex() == "".join(expected)
