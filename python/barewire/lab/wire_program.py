# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The programs that make a port send as a wire does: a frame leaves once its last bit would have left.

    frame ── entry ─┬─────────── held by the clock ───────────┬── out
                    ├── frames ────────────┬── bucket ── leave ┘
                    └── dummies ── resize ─┘

`entry` runs at the port, with the time at which the wire becomes free (`FREE_AT`) in a map. A frame that finds the wire
idle, and the first frames of a burst, are held in a loop that reads the clock. Everything else goes to a token bucket
on an interface of its own, whose timer does not occupy a core. A bucket that was idle is full, and would pass frames at
once. So the first frame that goes there is preceded by dummies of just the length that leaves the bucket as empty
as it has to be; `leave`, behind the bucket, drops them. A bucket's timer is some microseconds late or, by
`MARGIN_NS`, early where the time is long. `leave` holds the first and the last frame of the queue by the clock.

The loop occupies the sender's core, which a real sender would have free. What a sender hands over without having
waited for anything since is therefore treated as if it had come earlier by the time that the core spent in such loops:
a stream fills the wire.
"""

from dataclasses import dataclass
from enum import Enum

from barewire.lab.bpf import Assembler, Helper, Register
from barewire.lab.plan import WIRE_FRAME_BYTES_MIN, WIRE_OVERHEAD_BYTES

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = Register

# A frame that takes longer waits in the queue, where the core is free; so do frames of a burst from then on.
HOLD_NS_MAX = 80_000
# Passing through the queue takes a core longer than this.
SHORT_WAIT_NS = 2_000
# How much too early the bucket releases a frame, for `leave` to hold it: timers are less late than that.
MARGIN_NS = 40_000
# A pause of this length in what a core sends ends a burst.
PAUSE_NS = 20_000
# A stream's gaps are shorter than this part of it.
STREAM_GAPS = 3
# A queue that should have been empty for that long has lost frames, whose number is then forgotten.
LOST_NS = 5_000_000
# From the decision on a frame to its arrival behind a cable's port.
CABLE_COST_NS = 330

# The map's entry for each port: times in ns, numbers of frames.
FREE_AT, QUEUED, LEFT, BURST_AT, BURST_STOLEN, BURST_PROCESSOR, DRAINED_AT = range(0, 56, 8)
PORT_BYTES = 56

# struct __sk_buff
_LENGTH, _MARK = 0, 8
_FRACTION_BITS = 20
# Marks of frames: how long a dummy is, the end of the first frame in the queue, and frames that come out of it.
_FIRST, _DUMMY, _PASSED = 1 << 28, 1 << 29, 1 << 30
_FRAME_BYTES_MAX = 15_000  # programs may not make longer ones (SKB_MAX_ALLOC)
_TC_UNSPECIFIED, _TC_OK, _TC_SHOT = -1, 0, 2
_INGRESS = 1
_LOOPS_MAX = 1 << 20
# Slots on the stack
_UNTIL, _KEY, _PROCESSOR, _STOLEN_AT, _STOLEN, _BEGIN, _END, _LATE, _REST = range(-8, -80, -8)


class Forwarding(Enum):
    """What happens to a frame that a port has delayed."""

    EGRESS = "the interface transmits it"
    INGRESS = "the interface's receive processing continues"
    PEER = "the host at the other end of a cable receives it, without another soft interrupt"
    PEER_INTERFACE = "the interface at the other end of a cable transmits it, as receive steering needs"


@dataclass(frozen=True)
class Maps:
    """Descriptors: the ports' entries, and for each processor the ns spent in loops."""

    ports: int
    stolen: int


@dataclass(frozen=True)
class Port:
    """A port: its entry, and that of the port by which the sender of its frames receives.

    `interface` is the port's own, or the one at the other end of a cable. `queue` has the token bucket, `behind` is the
    other end of that veth.
    """

    number: int
    reverse: int
    forwarding: Forwarding
    interface: int
    queue: int
    behind: int
    rate_bit_s: int
    bucket_bytes: int
    queue_bytes: int

    @property
    def byte_time(self) -> int:
        """Ns for a byte, times 2^20."""
        return (8 * 10**9 << _FRACTION_BITS) // self.rate_bit_s

    @property
    def bucket_ns(self) -> int:
        """The time in which the bucket fills: the kernel adds a frame's overhead to its size."""
        return (self.bucket_bytes + WIRE_OVERHEAD_BYTES) * 8 * 10**9 // self.rate_bit_s

    @property
    def dummy_bytes_max(self) -> int:
        """The longest dummy, with its overhead: a frame longer than the bucket is dropped."""
        return min(self.bucket_bytes, _FRAME_BYTES_MAX) + WIRE_OVERHEAD_BYTES

    @property
    def dummies_max(self) -> int:
        """How many dummies empty the bucket."""
        return -(-self.bucket_bytes // _FRAME_BYTES_MAX)

    @property
    def queue_ns(self) -> int:
        """The time in which a full queue empties."""
        return self.queue_bytes * 8 * 10**9 // self.rate_bit_s

    @property
    def cost_ns(self) -> int:
        """What to hold a frame less."""
        return CABLE_COST_NS if self.forwarding is Forwarding.PEER else 0


def entry(port: Port, maps: Maps) -> Assembler:
    """Return the program at the port."""
    code = Assembler()
    code.compute(R6, "=", R1)
    code.load(R1, R6, _MARK, bits=32)
    code.jump_if(R1, "&", _PASSED, "passed")
    code.call(Helper.CLOCK_NS)
    code.compute(R7, "=", R0)
    _find(code, maps.ports, port.number, "out")
    code.compute(R8, "=", R0)
    _compute_wire_time(code, port)
    _look_at_queue(code)
    _judge_idle_wire(code, port, maps)
    _enter_queue(code, port)
    code.label("hold")  # R2: until when
    _hold(code, port, steal=True)
    code.label("out")
    _send(code, port)
    code.label("passed")
    _set_mark(code, 0)
    _send(code, port)
    _turn(code)
    return code


def resize(port: Port, _maps: Maps) -> Assembler:
    """Return the program that gives a dummy its length, on its way to the bucket.

    It is at another interface, because the kernel determines what a frame takes of a bucket before it runs programs.
    """
    code = Assembler()
    code.compute(R6, "=", R1)
    code.load(R2, R6, _MARK, bits=32)
    code.compute(R2, "&", _DUMMY - 1)
    code.compute(R3, "=", 0)
    code.call(Helper.SKB_CHANGE_TAIL)
    code.jump_if(R0, "!=", 0, "refused")
    _redirect(code, Helper.REDIRECT, port.queue, 0)
    code.label("refused")
    _return(code, _TC_SHOT)
    return code


def leave(port: Port, maps: Maps) -> Assembler:
    """Return the program behind the bucket."""
    code = Assembler()
    code.compute(R6, "=", R1)
    code.load(R9, R6, _MARK, bits=32)
    code.jump_if(R9, "&", _DUMMY, "drop")
    _find(code, maps.ports, port.number, "out")
    code.compute(R8, "=", R0)
    code.compute(R1, "=", 1)
    code.atomic_add(R8, LEFT, R1)
    code.call(Helper.CLOCK_NS)
    code.compute(R7, "=", R0)
    code.jump_if(R9, "&", _FIRST, "first")
    code.load(R1, R8, LEFT)
    code.load(R2, R8, QUEUED)
    code.jump_if(R1, "!=", R2, "out")
    code.load(R2, R8, FREE_AT)
    code.compute(R1, "=", R2)
    code.compute(R1, "-", R7)
    code.jump("if soon")
    code.label("first")
    code.compute(R1, "=", R9)
    code.compute(R1, "-", R7)
    code.compute(R1, "&", _FIRST - 1)
    code.compute(R2, "=", R7)
    code.compute(R2, "+", R1)
    code.label("if soon")
    code.jump_if(R1, "s>", 2 * HOLD_NS_MAX, "out")
    _hold(code, port, steal=False)
    code.label("out")
    if port.forwarding in (Forwarding.PEER, Forwarding.PEER_INTERFACE):
        _set_mark(code, 0)
        _send(code, port)
    else:
        _set_mark(code, _PASSED)
        _redirect(code, Helper.REDIRECT, port.interface, _INGRESS if port.forwarding is Forwarding.INGRESS else 0)
    code.label("drop")
    _return(code, _TC_SHOT)
    _turn(code)
    return code


def _compute_wire_time(code: Assembler, port: Port) -> None:
    """R9: the frame's time on the wire."""
    code.load(R9, R6, _LENGTH, bits=32)
    code.compute(R9, "+", WIRE_OVERHEAD_BYTES)
    code.jump_if(R9, ">=", WIRE_FRAME_BYTES_MIN, "long enough")
    code.compute(R9, "=", WIRE_FRAME_BYTES_MIN)
    code.label("long enough")
    code.constant(R1, port.byte_time)
    code.compute(R9, "*", R1)
    code.compute(R9, "+", 1 << _FRACTION_BITS - 1)
    code.compute(R9, ">>", _FRACTION_BITS)


def _look_at_queue(code: Assembler) -> None:
    """Continue at "queued" if frames wait in the bucket for the wire; _LATE: whether only for a late timer."""
    code.compute(R4, "=", 0)
    code.load(R2, R8, QUEUED)
    code.load(R3, R8, LEFT)
    code.jump_if(R2, "==", R3, "queue empty")
    code.load(R1, R8, FREE_AT)
    code.jump_if(R1, ">", R7, "queued")
    code.compute(R4, "=", 1)
    code.constant(R3, LOST_NS)
    code.compute(R1, "+", R3)
    code.jump_if(R7, "<=", R1, "queue empty")
    code.store(R8, LEFT, R2)
    code.compute(R4, "=", 0)
    code.label("queue empty")
    code.store(R10, _LATE, R4)


def _judge_idle_wire(code: Assembler, port: Port, maps: Maps) -> None:
    """The queue is empty: hold the frame (R2: until when), or continue with R2 as its end and _BEGIN."""
    code.call(Helper.PROCESSOR)
    code.store(R10, _PROCESSOR, R0)
    _find(code, maps.stolen, 0, "out")
    code.store(R10, _STOLEN_AT, R0)
    code.load(R1, R0, 0)
    code.store(R10, _STOLEN, R1)
    code.load(R1, R8, FREE_AT)
    code.jump_if(R1, ">", R7, "busy")
    _judge_sender(code, port, maps)
    _occupy_afresh(code)
    _follow_another_core(code)


def _judge_sender(code: Assembler, port: Port, maps: Maps) -> None:
    """The wire is free: continue at "fresh", or with a burst, in which the sender was held up."""
    # Has the sender received anything since the last frame left? Then it has waited for that, unless it has sent for
    # much longer than one frame takes, almost without a gap: then what it received were acknowledgements.
    _find(code, maps.ports, port.reverse, "out")
    code.load(R2, R0, FREE_AT)
    code.load(R1, R8, FREE_AT)
    code.jump_if(R2, "<=", R1, "did not wait")
    code.load(R3, R8, BURST_AT)
    code.compute(R2, "=", R1)
    code.compute(R2, "-", R3)
    code.compute(R3, "=", R9)
    code.compute(R3, ">>", 1)
    code.compute(R3, "+", R9)
    code.jump_if(R2, "<=", R3, "fresh")
    code.compute(R3, "=", R7)
    code.compute(R3, "-", R1)
    code.compute(R3, "*", STREAM_GAPS)
    code.jump_if(R3, ">", R2, "fresh")
    code.label("did not wait")
    code.load(R2, R10, _PROCESSOR)
    code.load(R3, R8, BURST_PROCESSOR)
    code.jump_if(R2, "!=", R3, "fresh")
    # R4: when the frame would have come from a core that was not held
    code.load(R2, R10, _STOLEN)
    code.load(R3, R8, BURST_STOLEN)
    code.compute(R2, "-", R3)
    code.compute(R4, "=", R7)
    code.compute(R4, "-", R2)
    code.jump_if(R4, ">=", R1, "wire was free")
    code.compute(R4, "=", R1)
    code.label("wire was free")
    code.compute(R5, "=", R4)
    code.compute(R5, "-", R1)
    code.jump_if(R5, ">", PAUSE_NS, "fresh")
    _occupy(code)
    code.load(R3, R8, BURST_AT)
    code.compute(R1, "=", R2)
    code.compute(R1, "-", R3)
    code.jump_if(R1, "<=", HOLD_NS_MAX, "hold")
    code.jump("if short")


def _occupy_afresh(code: Assembler) -> None:
    """Begin a burst now."""
    code.label("fresh")
    code.compute(R4, "=", R7)
    code.load(R1, R8, FREE_AT)
    _occupy(code)
    code.store(R8, BURST_AT, R7)
    for slot, field in ((_STOLEN, BURST_STOLEN), (_PROCESSOR, BURST_PROCESSOR)):
        code.load(R1, R10, slot)
        code.store(R8, field, R1)
    code.jump_if(R9, "<=", HOLD_NS_MAX, "hold")
    code.jump("enter queue")


def _follow_another_core(code: Assembler) -> None:
    """Begin when the wire is free; at "if short", hold the frame or go on to the queue."""
    # Another core holds a frame: wait for it, since the bucket cannot hold less than nothing.
    code.label("busy")
    code.load(R3, R10, _LATE)
    code.jump_if(R3, "!=", 0, "queued")
    code.compute(R2, "=", R9)
    code.atomic_add(R8, FREE_AT, R2, fetch=True)
    code.store(R10, _BEGIN, R2)
    code.compute(R1, "=", R2)
    code.compute(R1, "+", R9)
    code.store(R10, _END, R1)
    code.compute(R1, "=", R2)
    code.compute(R1, "-", R7)
    code.jump_if(R1, ">", 2 * HOLD_NS_MAX, "too long")
    _read_clock_until(code)
    code.load(R7, R10, _BEGIN)
    code.label("too long")
    code.load(R2, R10, _END)
    code.label("if short")
    code.compute(R1, "=", R2)
    code.compute(R1, "-", R7)
    code.jump_if(R1, "s<=", SHORT_WAIT_NS, "hold")


def _occupy(code: Assembler) -> None:
    """Occupy the wire, free since R1, from R4 on; leaves R4 in _BEGIN, and the end in R2; to "late" behind a queue."""
    code.store(R10, _BEGIN, R4)
    code.compute(R2, "=", R4)
    code.compute(R2, "+", R9)
    code.compute(R0, "=", R1)
    code.compare_and_exchange(R8, FREE_AT, R2)
    code.jump_if(R0, "!=", R1, "busy")
    code.load(R3, R10, _LATE)
    code.jump_if(R3, "!=", 0, "late")


def _enter_queue(code: Assembler, port: Port) -> None:
    """Send the frame to the bucket: "enter queue" with its end in R2 if the queue is empty, else "queued"."""
    code.label("enter queue")
    code.store(R10, _END, R2)
    # R1: ns in the bucket
    code.compute(R1, "=", R7)
    code.load(R3, R8, DRAINED_AT)
    code.compute(R1, "-", R3)
    code.jump_if(R1, "s>", 0, "has filled")
    code.compute(R1, "=", 0)
    code.label("has filled")
    code.constant(R3, port.bucket_ns)
    code.jump_if(R1, "<=", R3, "not full")
    code.compute(R1, "=", R3)
    code.label("not full")
    # less what it must hold for the frame to leave at its end, or a margin before
    code.load(R3, R10, _BEGIN)
    code.compute(R1, "-", R7)
    code.compute(R1, "+", R3)
    code.compute(R5, "=", R2)
    code.compute(R2, "-", R7)
    code.jump_if(R2, "s<=", 2 * MARGIN_NS, "no margin")
    code.compute(R1, "-", MARGIN_NS)
    code.compute(R5, "-", MARGIN_NS)
    code.label("no margin")
    code.compute(R5, "-", R1)  # if nothing is taken
    code.store(R8, DRAINED_AT, R5)
    code.jump_if(R1, "s<=", 0, "no dummy")
    _send_dummies(code, port, "no dummy")
    code.label("no dummy")
    code.load(R1, R10, _END)
    code.compute(R1, "&", _FIRST - 1)
    code.compute(R1, "|", _FIRST)
    code.jump("in queue")
    code.label("late")  # R1 to R4: the wire was free although a timer is late, and the bucket has filled meanwhile
    code.compute(R4, "-", R1)
    code.compute(R1, "=", R4)
    _send_dummies(code, port, "follow")
    code.jump("follow")
    code.label("queued")
    # A frame that the full queue drops takes no time.
    code.load(R1, R8, FREE_AT)
    code.compute(R1, "-", R7)
    code.constant(R3, port.queue_ns)
    code.jump_if(R1, "s>", R3, "queue full")
    code.atomic_add(R8, FREE_AT, R9)
    code.label("follow")
    code.atomic_add(R8, DRAINED_AT, R9)
    code.label("queue full")
    code.compute(R1, "=", 0)
    code.label("in queue")  # R1: the frame's mark
    code.store(R6, _MARK, R1, bits=32)
    code.compute(R1, "=", 1)
    code.atomic_add(R8, QUEUED, R1)
    _redirect(code, Helper.REDIRECT, port.queue, 0)


def _send_dummies(code: Assembler, port: Port, otherwise: str) -> None:
    """Take R1 ns from the bucket by as many dummies as it needs; to `otherwise` when the next would be too short."""
    code.compute(R1, "<<", _FRACTION_BITS)
    code.constant(R3, port.byte_time)
    code.compute(R1, "/", R3)
    for number in range(port.dummies_max):
        label = f"dummy {number}, {otherwise}"
        code.jump_if(R1, "<", WIRE_FRAME_BYTES_MIN, otherwise)
        code.compute(R2, "=", R1)
        code.jump_if(R1, "<=", port.dummy_bytes_max, label)
        code.compute(R1, "=", port.dummy_bytes_max)
        code.label(label)
        code.compute(R2, "-", R1)
        code.store(R10, _REST, R2)
        code.constant(R3, port.byte_time)
        code.compute(R3, "*", R1)
        code.compute(R3, ">>", _FRACTION_BITS)
        code.atomic_add(R8, DRAINED_AT, R3)
        code.compute(R1, "-", WIRE_OVERHEAD_BYTES)
        code.compute(R1, "|", _DUMMY)
        code.store(R6, _MARK, R1, bits=32)
        code.compute(R1, "=", R6)
        code.compute(R2, "=", port.behind)
        code.compute(R3, "=", 0)
        code.call(Helper.CLONE_REDIRECT)
        code.load(R1, R10, _REST)


def _hold(code: Assembler, port: Port, *, steal: bool) -> None:
    """Read the clock until R2; to "out" if that is past. Adds the time to what was stolen from this processor."""
    if port.cost_ns:
        code.compute(R2, "-", port.cost_ns)
    code.compute(R1, "=", R2)
    code.compute(R1, "-", R7)
    code.jump_if(R1, "s<=", 0, "out")
    if steal:
        code.load(R3, R10, _STOLEN_AT)
        code.load(R4, R3, 0)
        code.compute(R4, "+", R1)
        code.store(R3, 0, R4)
    _read_clock_until(code)


def _read_clock_until(code: Assembler) -> None:
    """Read the clock until R2."""
    code.store(R10, _UNTIL, R2)
    code.compute(R1, "=", _LOOPS_MAX)
    code.function(R2, "turn")
    code.compute(R3, "=", R10)
    code.compute(R3, "+", _UNTIL)
    code.compute(R4, "=", 0)
    code.call(Helper.LOOP)


def _turn(code: Assembler) -> None:
    """One turn of the loop: a function of the turn's number and the address of the time that ends it."""
    code.label("turn")
    code.load(R6, R2, 0)
    code.call(Helper.CLOCK_NS)
    code.compute(R1, "=", R0)
    code.compute(R0, "=", 1)
    code.jump_if(R1, ">=", R6, "enough")
    code.compute(R0, "=", 0)
    code.label("enough")
    code.exit()


def _send(code: Assembler, port: Port) -> None:
    """Let the frame leave the port."""
    if port.forwarding is Forwarding.PEER:
        _redirect(code, Helper.REDIRECT_PEER, port.interface, 0)
    elif port.forwarding is Forwarding.PEER_INTERFACE:
        _redirect(code, Helper.REDIRECT, port.interface, 0)
    else:
        # Behind the port further filters may follow, such as a link's loss.
        _return(code, _TC_OK if port.forwarding is Forwarding.EGRESS else _TC_UNSPECIFIED)


def _find(code: Assembler, descriptor: int, key: int, otherwise: str) -> None:
    """R0: the address of a map's entry."""
    code.compute(R1, "=", key)
    code.store(R10, _KEY, R1, bits=32)
    code.map(R1, descriptor)
    code.compute(R2, "=", R10)
    code.compute(R2, "+", _KEY)
    code.call(Helper.MAP_LOOKUP)
    code.jump_if(R0, "==", 0, otherwise)


def _set_mark(code: Assembler, mark: int) -> None:
    code.compute(R1, "=", mark)
    code.store(R6, _MARK, R1, bits=32)


def _redirect(code: Assembler, helper: Helper, interface: int, flags: int) -> None:
    code.compute(R1, "=", interface)
    code.compute(R2, "=", flags)
    code.call(helper)
    code.exit()


def _return(code: Assembler, verdict: int) -> None:
    code.compute(R0, "=", verdict)
    code.exit()
