# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What can be measured and set: one table each for transports, tests and tuning values.

The command line's choices, help and completion come from these tables, and so do the tables of docs/reference.md.
Tests compare them with the programs: the probe's transports, tests and tuning values, and the C suite's sources.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Transport:
    """A transport of the probe.

    `has_link`: its frames may go over any of `models.naming.LINKS`. `brokered`: its sockets may be a broker's. `tuned`:
    it reads the tuning file, whose values a launch may override.
    """

    name: str
    what: str
    has_link: bool = False
    brokered: bool = False
    tuned: bool = False


class Program(StrEnum):
    """The program that has a test."""

    probe = "bench"
    mpi = "mpi"
    kernel = "mpi, a kernel"
    host = "bench host"


@dataclass(frozen=True)
class MeasuredTest:
    """A test. `usual` has the variants of an MPI test that are measured by default, where that is not every variant."""

    name: str
    program: Program
    what: str
    usual: str | None = None


@dataclass(frozen=True)
class TuningValue:
    """A value of the tuning file, in the unit that is last in its name, else a number.

    `parameter` overrides it for the provider, as FI_BAREWIRE_ and this name. `measured_by` writes it.
    """

    name: str
    what: str
    parameter: str | None
    measured_by: str = "tune"


TRANSPORTS = (
    Transport("tcp", "the kernel's TCP"),
    Transport("udp", "the kernel's UDP"),
    Transport("raw", "plain frames, without recovery", has_link=True),
    Transport("xdp", "plain frames over AF_XDP", has_link=True),
    Transport("llc1", "LLC type 1: unacknowledged, without connections", has_link=True, brokered=True),
    Transport("llc2", "LLC type 2: connections with a window", has_link=True, brokered=True),
    Transport("llc3", "LLC type 3: acknowledged, without connections", has_link=True, brokered=True),
    Transport("kernel-llc2", "the kernel's LLC type 2 (AF_LLC)"),
    Transport("endpoint", "an endpoint with queues, over LLC", has_link=True, brokered=True, tuned=True),
    Transport("messages", "tagged messages over an endpoint", has_link=True, brokered=True, tuned=True),
    Transport("libfabric", "tagged messages through libfabric and Barewire's provider", brokered=True),
    Transport("libfabric-tcp", "the same over libfabric's tcp;ofi_rxm"),
    Transport("libfabric-udp", "the same over libfabric's udp;ofi_rxd"),
)

TESTS = (
    MeasuredTest("pingpong", Program.probe, "half a round trip of one message"),
    MeasuredTest("stream", Program.probe, "messages one way without a pause, timed at the receiver"),
    MeasuredTest("bidirectional", Program.probe, "messages in both directions at once"),
    MeasuredTest("alltoall", Program.mpi, "a block from each rank to each, by the library's collective and by pairs"),
    MeasuredTest("availability", Program.mpi, "post, work, wait: the share of a message's time left to the program"),
    MeasuredTest("bandwidth", Program.mpi, "one-way messages with a fixed number in flight"),
    MeasuredTest("beff", Program.mpi, "b_eff: natural and random rings of all ranks"),
    MeasuredTest("bidirectional", Program.mpi, "messages in both directions at once", "nonblocking-send"),
    MeasuredTest("burst", Program.mpi, "bursts of messages with pauses, to a receiver that does not reply"),
    MeasuredTest("collective", Program.mpi, "MPI's collectives, with every rank as the root once"),
    MeasuredTest("datatype", Program.mpi, "half a round trip of derived datatypes, and of contiguous bytes"),
    MeasuredTest("exchange", Program.mpi, "both ranks of a pair send and receive, by each of MPI's methods"),
    MeasuredTest("footprint", Program.mpi, "memory of rank 0 after a message of each size with each peer"),
    MeasuredTest("halo", Program.mpi, "a message to each of four neighbours on a grid, and one from each"),
    MeasuredTest("incast", Program.mpi, "messages of 1, 2, 4, … and all other ranks to rank 0"),
    MeasuredTest(
        "logp",
        Program.mpi,
        "parametrised LogP: round trip, gap and both overheads",
        "roundtrip,gap,gap-send,gap-receive",
    ),
    MeasuredTest("neighbourhood", Program.mpi, "neighbourhood collectives on a grid and on a graph"),
    MeasuredTest("nonblocking", Program.mpi, "non-blocking collectives, alone and beside an equally long computation"),
    MeasuredTest("onesided", Program.mpi, "one-sided operations, each with its synchronisation"),
    MeasuredTest(
        "overhead",
        Program.mpi,
        "processor time of sending and receiving",
        "gap-send,gap-isend,gap-receive,call-send,call-receive",
    ),
    MeasuredTest(
        "overlap",
        Program.mpi,
        "how much computation a message hides",
        "pingpong,local-standard,local-synchronous,local-receive",
    ),
    MeasuredTest("partitioned", Program.mpi, "half a round trip of partitioned messages, and of whole ones"),
    MeasuredTest("persistent", Program.mpi, "messages in both directions by persistent requests"),
    MeasuredTest(
        "pingpong", Program.mpi, "half a round trip between pairs of ranks, in each send mode", "blocking-standard"
    ),
    MeasuredTest("rate", Program.mpi, "messages per second of all pairs, with a reply per window"),
    MeasuredTest("startup", Program.mpi, "from MPI_Init to the end of a first barrier"),
    MeasuredTest("stream", Program.mpi, "messages one way without a pause, timed at the receiver", "blocking-receive"),
    MeasuredTest("fft", Program.kernel, "Fourier transform in six steps, verified"),
    MeasuredTest("radix", Program.kernel, "parallel radix sort, verified"),
    MeasuredTest("krylov", Program.kernel, "conjugate gradients: halo exchange and reductions, verified"),
    MeasuredTest("memory", Program.host, "bandwidth of read, write and copy by block size"),
    MeasuredTest("load", Program.host, "read latency by block size: loads that depend on each other"),
    MeasuredTest("syscall", Program.host, "system calls"),
    MeasuredTest("process", Program.host, "making a process: fork, with a program, through a shell"),
    MeasuredTest("context", Program.host, "context switches in a ring of processes, by number and working set"),
    MeasuredTest("wakeup", Program.host, "context switches, and waking another process"),
    MeasuredTest("distance", Program.host, "time for a cache line to get from one core to another"),
    MeasuredTest("transfer", Program.host, "bandwidth between two processes: pipe, Unix socket, TCP"),
    MeasuredTest("filesystem", Program.host, "creating and deleting files of 0 to 10 KiB"),
    MeasuredTest("file", Program.host, "copying a file in the page cache against mapping it"),
    MeasuredTest("send", Program.host, "sending a message copied into one piece, or gathered from two"),
)

TUNING_VALUES = (
    TuningValue(
        "acknowledge_every",
        "frames that one acknowledgement covers",
        "ACKNOWLEDGE_EVERY",
        "tune, tune --quick",
    ),
    TuningValue("ring_bytes", "receive ring of the packet link; a broker uses its own", "RING", "tune, tune --quick"),
    TuningValue("window", "frames in flight to a peer, in each direction", "WINDOW"),
    TuningValue("acknowledge_delay_us", "how long an acknowledgement waits to be piggybacked", "ACKNOWLEDGE_DELAY"),
    TuningValue("slots", "frames in flight to all peers", "SLOTS"),
    TuningValue("send_descriptors", "messages in flight of an endpoint that is used directly", None),
    TuningValue("copy_crossover_bytes", "largest message that is copied into its slot", "COPY", "bench host --tune"),
    TuningValue("eager_bytes", "largest message that is sent without a handshake", "EAGER"),
    TuningValue("pipe_ring_bytes", "ring between processes of a host", "PIPE"),
    TuningValue(
        "fetched_bytes",
        "smallest message that a local peer copies from its sender's memory, where the kernel permits; 0: never",
        "FETCH",
    ),
)


def names_of_tests(*programs: Program) -> tuple[str, ...]:
    """Names of a program's tests, in the table's order."""
    return tuple(test.name for test in TESTS if test.program in programs)


def described(entries: Iterable[Transport | MeasuredTest | TuningValue]) -> dict[str, str]:
    """What each entry is, by name."""
    return {entry.name: entry.what for entry in entries}
