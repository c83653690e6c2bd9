# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Formatting of numbers, sizes, units and subjects, shared by terminal and page."""

from collections.abc import Iterable
from math import floor, log10

from barewire.models.naming import MTU, PACKET, UDP, mtu_of, read_mpi_subject, read_subject
from barewire.results.run import Place, Row, Series
from barewire.stats.comparison import Outcome

TEST_TITLES = {
    "pingpong": "Latency, one way",
    "stream": "Bandwidth, one direction",
    "bidirectional": "Bandwidth, both directions together",
    "memory": "Memory bandwidth by block size",
    "syscall": "System calls",
    "load": "Memory latency by block size",
    "process": "Making a process",
    "switch": "Context switch",
    "context": "A hop in a ring of processes",
    "wakeup": "Waking another process",
    "distance": "Distance of two cores",
    "transfer": "Bandwidth between two processes",
    "filesystem": "Creating and deleting files",
    "file": "Copy against map: a file in the page cache",
    "send": "Sending a message: copied into one piece, or gathered from two",
    "bandwidth": "Bandwidth by number of messages in flight",
    "rate": "Message rate, windows of messages",
    "exchange": "Exchange between pairs",
    "alltoall": "All-to-all",
    "halo": "Exchange with four neighbours on a grid",
    "overlap": "Computation that a message hides",
    "overhead": "Overhead of sending and receiving",
    "logp": "Parametrised LogP",
    "availability": "Processor left to the program",
    "beff": "b_eff: natural and random rings",
    "collective": "Collectives",
    "nonblocking": "Non-blocking collectives",
    "neighbourhood": "Neighbourhood collectives",
    "onesided": "One-sided operations, each with its synchronisation",
    "burst": "One-way bursts of messages, with pauses",
    "datatype": "Latency of derived datatypes, one way",
    "persistent": "Exchange by persistent requests",
    "partitioned": "Latency of partitioned messages, one way",
    "incast": "Many to one: rate at the receiver",
    "startup": "From MPI_Init to a first barrier",
    "footprint": "Memory for each peer",
    "fft": "Fast Fourier transform in six steps",
    "radix": "Radix sort",
    "krylov": "Conjugate gradients",
    "ring": "Rings of all ranks",
    "hpcc": "HPC Challenge",
}
TEST_EXPLANATIONS = {
    "pingpong": "Half the round trip of one message, in µs; less is better.",
    "stream": "Goodput of back-to-back messages, timed at the receiver, in Mbit/s (10⁶); more is better.",
    "bidirectional": "Goodput of both directions at once, added, in Mbit/s (10⁶); more is better.",
    "memory": "Bytes of the block read, written or copied per second, in MB/s (10⁶); more is better. "
    "write and copy use ordinary stores, stream stores past the caches, memcpy and memset are the C library's.",
    "syscall": "One call, in ns; less is better. clock reads the clock without entering the kernel.",
    "load": "One load whose address is the value of the one before, in ns; less is better. In strides of 128 B the "
    "prefetchers help, in random order they cannot.",
    "process": "Until the new process has ended and was waited for, in ns; less is better. exec also starts a small "
    "program, shell has /bin/sh start it.",
    "switch": "A hop through a pipe between processes on one core, less the same work in one process, in ns. Sizes are "
    "those of each process's working set, which it reads between two switches.",
    "context": "A hop through a pipe between processes on one core that each read a working set of this size, in ns; "
    "less is better. alone is one process.",
    "wakeup": "One hop, half a round trip, in ns; less is better. self is one process alone.",
    "distance": "A cache line handed from one core to another, which waits for it in a loop, in ns; less is better.",
    "transfer": "Bytes read per second from another process that writes blocks of this size, in MB/s (10⁶); more is "
    "better.",
    "filesystem": "One of 100 files in a directory of the run's file system, in ns, without waiting for the disk; less "
    "is better. Rows without a size are empty files.",
    "file": "Every word read, in MB/s (10⁶); more is better. map includes mapping and unmapping, mapped does not.",
    "send": "One frame passed to the kernel, in ns; less is better. cold: the message is not in the near caches.",
    "bandwidth": "One-way goodput with a queue of non-blocking sends, timed to the reply that all data has arrived.",
    "rate": "Messages per second of all pairs, with a reply per window; more is better.",
    "exchange": "Both ranks of a pair send and receive one message: the time of the slower, in µs; less is better.",
    "alltoall": "A block of this size from each rank to each: the time of the slowest rank, in µs; less is better.",
    "halo": "A message to each of four neighbours and one from each: the time of the slowest rank, in µs.",
    "overlap": "Time of messages against a concurrent computation: up to the bend the computation is hidden. "
    "Each launch's curve is fitted separately.",
    "overhead": "Processor time of a message: g minus the largest computation that does not lengthen the "
    "time between messages; and the time of the call itself.",
    "logp": "Per message size: EEL end-to-end latency, Os and Or overheads, g smallest interval between messages; L is "
    "the smallest message's EEL minus both overheads.",
    "availability": "Post, work, wait: the share of a message's time that is available to the program.",
    "beff": "All ranks exchange with both neighbours in a ring: the better of two methods, as in HPC Challenge.",
    "collective": "One operation, averaged over all roots: time of the slowest rank, in µs; less is better.",
    "nonblocking": "The call and the wait for it: the time of the slowest rank, in µs; and the share of it that a "
    "computation of equal length hides.",
    "neighbourhood": "A block to each neighbour on a grid or a graph: the time of the slowest rank, in µs.",
    "onesided": "One operation on another rank's memory and its synchronisation, at the origin, in µs; less is better.",
    "burst": "A receiver that does not reply: time of a burst's sends, and until its last message arrives, in µs.",
    "datatype": "Half the round trip of a non-contiguous message, compared with a contiguous one, in µs.",
    "persistent": "Messages in both directions by persistent requests: the time of the slower, in µs; less is better.",
    "partitioned": "Half the round trip of a partitioned message, compared with a whole one, in µs; less is better.",
    "incast": "Messages per second that rank 0 receives from a number of senders; more is better.",
    "startup": "The slowest rank's time from its call of MPI_Init; one value per launch. Less is better.",
    "footprint": "Resident memory of rank 0 by number of peers, in KiB; less is better.",
    "fft": "Bailey's six steps, every result verified: time of the slowest rank, in ms; less is better.",
    "krylov": "One iteration for a Poisson problem, every solution verified: time of the slowest rank, in ms; less is "
    "better.",
    "radix": "Keys sorted over all ranks, every result verified: time of the slowest rank, in ms; less is better.",
}
# Quantities of tests that have several.
QUANTITIES = {
    "uncomputed": "without computation",
    "hidden": "hidden computation",
    "added": "added to a longer computation",
    "hidden_share": "hidden share of its time",
    "overhead": "overhead",
    "gap": "gap g",
    "eel": "end-to-end latency EEL",
    "os": "overhead Os",
    "or": "overhead Or",
    "opportunity": "opportunity 2·EEL − (Os + Or)",
    "latency": "latency",
    "bandwidth": "bandwidth of each rank",
    "availability": "availability",
    "beside": "beside an equally long computation",
    "computation": "the computation alone",
    "sends": "until the sends are done",
    "delivery": "until the last message arrives",
    "first_barrier": "to the end of a first barrier",
    "init": "of which MPI_Init",
    "next_barrier": "a second barrier",
    "resident": "total",
    "growth": "growth for each peer",
    "time_mean": "mean over the ranks",
    "time_min": "the fastest rank",
    "exchange_mean": "mean over the ranks",
    "exchange_min": "the fastest rank",
    "bus_bandwidth": "bus bandwidth",
    "flops": "floating-point operations",
    "memory": "memory bandwidth",
    "updates": "random updates",
}
UNITS = {"us": "µs"}
MARKS = {
    "impossible": ("✗", "impossible: better than the limit allows"),
    "faster than floor": ("›", "faster than the floor of plain frames (see how the numbers were obtained)"),
    "lossy": ("~", "messages were lost; samples with loss are not used for rates"),
    "incomplete": ("…", "incomplete: the run was stopped here"),
}

VERDICT_WORDS: dict[Outcome, str] = {
    "A faster": "faster",
    "B faster": "slower",
    "no difference": "no difference",
    "undecided": "undecided",
}

_OF_SHARES = {"faster": "more", "slower": "less"}

_NAMES = {
    "tcp": "TCP",
    "udp": "UDP",
    "raw": "raw Ethernet",
    "llc1": "LLC 1",
    "llc2": "LLC 2",
    "llc3": "LLC 3",
    "kernel-llc2": "the kernel's LLC 2",
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
    UDP: "UDP",
}
_WAITING = {"spin": "", "adaptive": "adaptive", "block": "blocking", "busypoll": "busy-polled"}
_KIB = 1024


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, no exponent, without rounding before the decimal point."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    whole_digits = len(str(int(abs(value))))
    if abs(value) < 1:
        return f"{value:#.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"
    return f"{value:.{max(0, digits - whole_digits)}f}"


def decimals(value: float) -> int:
    """The decimals that show a value and what is near it with three digits, two at least."""
    return 2 if value == 0 else max(2, 2 - floor(log10(abs(value))))


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit for a sentence, unbreakable; large rates in Gbit/s."""
    if value is not None and unit == "Mbit/s" and value >= 10_000:
        value, unit = value / 1000, "Gbit/s"
    return f"{number(value)}\u00a0{unit_name(unit)}"


def interval(bounds: tuple[float, float] | None, digits: int = 3) -> str:
    """`[low, high]`, or a dash if there is none."""
    return "–" if bounds is None else f"[{number(bounds[0], digits)}, {number(bounds[1], digits)}]"


def bounds(ends: tuple[float, float] | None) -> str:
    """`[low, high]`, or an empty string if there is none."""
    return "" if ends is None else interval(ends)


def convergence(series: Series) -> str:
    """`6 × 140`: launches until precise, samples of a launch until its median settles; `> 12 × –`: not within 12."""
    # Runs of earlier versions have no such numbers.
    launches = series.launches_to_converge or ("–" if series.stop == "converged" else f"> {series.launches}")
    return f"{launches} × {series.samples_to_converge or '–'}"


def message_size(message_bytes: int) -> str:
    """64 B, 1400 B, 4 KiB, 1 MiB: binary units only where they are exact."""
    for factor, unit in ((_KIB**3, "GiB"), (_KIB**2, "MiB"), (_KIB, "KiB")):
        if message_bytes and message_bytes % factor == 0:
            return f"{message_bytes // factor} {unit}"
    return f"{message_bytes} B"


def subject_name(subject: str) -> str:
    """`raw/block` → raw Ethernet, blocking; `llc2+xdp` → LLC 2 over AF_XDP; an MPI subject stays as is."""
    if read_mpi_subject(subject) is not None:
        return subject
    transport, link, wait, settings = read_subject(subject)
    readable, link = _NAMES.get(transport, transport), _LINKS.get(link, link if link != PACKET else "")
    if link:
        readable = link if transport == "raw" and link != _LINKS[UDP] else f"{readable} over {link}"
    factors = [f"MTU {value}" if name == MTU else f"{name} {value}" for name, value in settings]
    return ", ".join([readable, *factors, *filter(None, [_WAITING.get(wait, wait)])])


def unit_name(unit: str) -> str:
    """The unit as printed: µs for us."""
    return UNITS.get(unit, unit)


def baseline_name(baseline: str, subjects: Iterable[str]) -> str:
    """Display name of the baseline: one subject, or the same library over some fabric; with the same MTU."""
    subjects = list(subjects)
    name = subject_name(baseline)
    if any(read_mpi_subject(subject) for subject in subjects) and read_mpi_subject(baseline) is None:
        name = f"the same library over {name}"
    return f"{name} with the same MTU" if any(map(mtu_of, subjects)) and mtu_of(baseline) is None else name


def test_title(test: str) -> str:
    """The heading of one test."""
    return TEST_TITLES.get(test, test)


def logp_mode(variant: str) -> list[str]:
    """What tells a variant of logp's parameters from the standard one, in words; nothing for that."""
    return {"logp-synchronous": ["synchronous mode"], "logp-irecv": ["receives posted in advance"]}.get(variant, [])


def title_of(place: Place) -> str:
    """The heading of a table: test, quantity if there are several, number of ranks, processes and pairs."""
    parts = [test_title(place.test)]
    if place.quantity in QUANTITIES:
        parts.append(QUANTITIES[place.quantity])
    if place.ranks:
        parts.append(f"{place.ranks} ranks")
    if place.processes > 1:
        parts.append(f"{place.processes} processes at once")
    if place.pairs > 1:
        parts.append(f"{place.pairs} pairs at once")
    return ", ".join(parts)


def row_name(row: Row, place: Place) -> str:
    """A row's heading: its variant if there are several, its parameter, its size."""
    parts = [row.variant] if row.variant else []
    if row.value is not None:
        parts.append(f"{place.parameter} {row.value:g}")
    return ", ".join([*parts, message_size(row.message_bytes)])


def series_name(series: Series) -> str:
    """Test, subject and size, as a sentence names them."""
    return f"{title_of(series.place)}: {subject_name(series.subject)}, {row_name(series.row, series.place)}"


def verdict_word(verdict: Outcome, series: Series) -> str:
    """A verdict about a series as a word; shares and hidden times are more or less, not faster or slower."""
    word = VERDICT_WORDS[verdict]
    return word if series.lower_is_better or series.unit.endswith("/s") else _OF_SHARES.get(word, word)


def marks_of(series: Series) -> list[str]:
    """Keys of `MARKS` that apply to this series."""
    marks: list[str] = [series.verdict] if series.verdict in MARKS else []
    marks += ["lossy"] if series.lost else []
    return marks + (["incomplete"] if series.stop == "incomplete" else [])


def p_value(p: float | None) -> str:
    """0.032, <0.001, or a dash."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def interval_heading(confidence: float) -> str:
    """95 % interval."""
    return f"{percent(confidence)} interval"


def percent(share: float) -> str:
    """5 %, 0.5 %, 99 %."""
    return f"{100 * share:.4g} %"
