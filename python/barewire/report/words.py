# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How numbers, sizes, units and subjects are written; one place, so terminal and page say the same."""

from barewire.models.naming import PACKET, read_subject
from barewire.results import Series

TEST_TITLES = {
    "pingpong": "Latency, one way",
    "stream": "Bandwidth, one direction",
    "bidirectional": "Bandwidth, both directions together",
    "memory": "Memory bandwidth by block size",
    "syscall": "System calls",
    "switch": "Context switch",
    "wakeup": "Waking another process",
    "file": "Copy against map: a file in the page cache",
    "send": "Sending a message: copied into one piece, or gathered from two",
}
TEST_EXPLANATIONS = {
    "pingpong": "Half the round trip of one message, in µs; less is better.",
    "stream": "Goodput of back-to-back messages, timed at the receiver, in Mbit/s (10⁶); more is better.",
    "bidirectional": "Goodput of both directions at once, added, in Mbit/s (10⁶); more is better.",
    "memory": "Bytes of the block read, written or copied per second, in MB/s (10⁶); more is better. "
    "write and copy use ordinary stores, stream stores past the caches, memcpy is the C library's.",
    "syscall": "One call, in ns; less is better. clock reads the clock without entering the kernel.",
    "switch": "A hop through a pipe between two processes on one core, less the same byte without a switch, in ns.",
    "wakeup": "One hop, half a round trip, in ns; less is better. self is one process alone.",
    "file": "Every word looked at, in MB/s (10⁶); more is better. map includes mapping and unmapping, mapped does not.",
    "send": "One frame handed to the kernel, in ns; less is better. cold: the message is not in the near caches.",
}
UNITS = {"us": "µs"}
MARKS = {
    "impossible": ("✗", "impossible: better than the limit allows"),
    "faster than floor": ("›", "faster than the floor of plain frames (see how each number was got)"),
    "lossy": ("~", "messages were lost; samples with loss count in no rate"),
    "incomplete": ("…", "incomplete: the run was stopped here"),
}

VERDICT_WORDS = {
    "A faster": "faster",
    "B faster": "slower",
    "no difference": "no difference",
    "undecided": "undecided",
}

_NAMES = {
    "tcp": "TCP",
    "udp": "UDP",
    "raw": "raw Ethernet",
    "llc1": "LLC 1",
    "llc2": "LLC 2",
    "llc3": "LLC 3",
    "endpoint": "endpoint",
    "messages": "messages",
    "libfabric": "libfabric",
    "libfabric-tcp": "libfabric over TCP",
    "libfabric-udp": "libfabric over UDP",
    "floor": "floor",
}
_LINKS = {
    "xdp": "AF_XDP",
    "xdp-generic": "generic AF_XDP",
    "xdp-native": "native AF_XDP",
    "xdp-zerocopy": "zero-copy AF_XDP",
}
_WAITING = {"spin": "", "adaptive": "adaptive", "block": "blocking", "busypoll": "busy-polled"}
_KIB = 1024


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, no exponent, never rounding away digits before the point."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    whole_digits = len(str(int(abs(value))))
    if abs(value) < 1:
        return f"{value:#.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"
    return f"{value:.{max(0, digits - whole_digits)}f}"


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit for a sentence, unbreakable; large rates in Gbit/s."""
    if value is not None and unit == "Mbit/s" and value >= 10_000:
        value, unit = value / 1000, "Gbit/s"
    return f"{number(value)}\u00a0{unit_name(unit)}"


def interval(bounds: tuple[float, float] | None, digits: int = 3) -> str:
    """`[low, high]`, or a dash where there is none."""
    return "–" if bounds is None else f"[{number(bounds[0], digits)}, {number(bounds[1], digits)}]"


def bounds(ci95: tuple[float, float] | None) -> str:
    """`[low, high]`, or nothing where there is none."""
    return "" if ci95 is None else interval(ci95)


def message_size(message_bytes: int) -> str:
    """64 B, 1400 B, 4 KiB, 1 MiB: binary units only where they are exact."""
    for factor, unit in ((_KIB**3, "GiB"), (_KIB**2, "MiB"), (_KIB, "KiB")):
        if message_bytes and message_bytes % factor == 0:
            return f"{message_bytes // factor} {unit}"
    return f"{message_bytes} B"


def subject_name(subject: str) -> str:
    """`raw/block` → raw Ethernet, blocking; `llc2+xdp` → LLC 2 over AF_XDP."""
    transport, link, wait = read_subject(subject)
    readable, link = _NAMES.get(transport, transport), _LINKS.get(link, link if link != PACKET else "")
    if link:
        readable = link if transport == "raw" else f"{readable} over {link}"
    waiting = _WAITING.get(wait, wait)
    return f"{readable}, {waiting}" if waiting else readable


def unit_name(unit: str) -> str:
    """The unit as printed: µs for us."""
    return UNITS.get(unit, unit)


def test_title(test: str, pairs: int = 1, processes: int = 1) -> str:
    """The heading of one test; several pairs or processes are named."""
    title = TEST_TITLES.get(test, test)
    if processes > 1:
        return f"{title}, {processes} processes at once"
    return title if pairs == 1 else f"{title}, {pairs} pairs at once"


def marks_of(one: Series) -> list[str]:
    """Keys of `MARKS` that apply to this series."""
    marks: list[str] = [one.verdict] if one.verdict in MARKS else []
    marks += ["lossy"] if one.lost else []
    return marks + (["incomplete"] if one.stop == "incomplete" else [])


def p_value(p: float | None) -> str:
    """0.032, <0.001, or a dash."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"
