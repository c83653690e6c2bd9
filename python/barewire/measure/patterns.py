# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard's patterns, tests of the C suite, and the testbeds that it measures them on."""

from dataclasses import dataclass
from typing import Literal

from barewire.errors import unknown
from barewire.lab import LinkSpec

_KIB, _MIB = 1 << 10, 1 << 20
SIZES_FULL = (8, 128, *(kib * _KIB for kib in (1, 2, 4, 8, 16, 32, 64, 256)), _MIB, 4 * _MIB)
SIZES_QUICK = (8, _KIB, 4 * _KIB, 16 * _KIB, 64 * _KIB, _MIB)
SIZES_QUICK_MANY = (8, 4 * _KIB, 64 * _KIB)
_GBIT = 10**9

Ranks = Literal["two", "many", "any"]


@dataclass(frozen=True)
class Pattern:
    """A test of the C suite on the scoreboard; the same test with other options is another pattern.

    The full form measures `variants`, or all of the test's if none are listed; the quick form measures `quick`, and
    omits patterns without any unless they are `named`: of these it then measures all. `on` and `quick_on` restrict the
    pattern to numbers of ranks, in both forms and in the quick form. Sizes end at `largest`, with more than two ranks
    at `largest_many`. The test's unit determines whether lower is better. Patterns that are `alone` have their own
    launches: those that measure start-up, or have no sizes (kernels).
    """

    test: str
    variants: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    on: Ranks = "any"
    quick_on: Ranks = "any"
    largest: int = 4 * _MIB
    largest_many: int = 256 * _KIB
    options: tuple[str, ...] = ()
    alone: bool = False
    has_sizes: bool = True
    named: bool = False

    def is_for(self, ranks: int, *, quick: bool) -> bool:
        """Return whether this form measures the pattern with `ranks` ranks."""
        allowed = (self.on, self.quick_on) if quick else (self.on,)
        return (bool(self.quick) or self.named or not quick) and {*allowed} <= {"any", "two" if ranks == 2 else "many"}

    def sizes(self, ranks: int, *, quick: bool) -> tuple[int, ...]:
        """Return the message sizes in bytes."""
        largest = self.largest if ranks == 2 else self.largest_many
        quick_sizes = SIZES_QUICK if ranks == 2 else SIZES_QUICK_MANY
        return tuple(size for size in (quick_sizes if quick else SIZES_FULL) if size <= largest)


PATTERNS = (
    Pattern(
        "pingpong",
        ("blocking-standard", "blocking-synchronous", "nonblocking-standard"),
        quick=("blocking-standard",),
        on="two",
    ),
    Pattern("exchange", quick=("nonblocking-receive-standard", "sendrecv"), on="two"),
    Pattern("exchange", ("sendrecv",), on="many", options=("--pairs", "0")),
    # Timed at the receiver: on a busy machine stretches are bursts and pauses. Not for the quick form.
    Pattern("stream", on="two"),
    Pattern("bidirectional", quick=("nonblocking-send",), on="two"),
    Pattern("bandwidth", ("blocking", "queue-2", "queue-4", "queue-8"), quick=("queue-4",), on="two"),
    Pattern("rate", quick=("window",), on="two", largest=64 * _KIB),
    Pattern("alltoall", ("collective", "pairwise-sendrecv"), quick=("collective",), largest=_MIB),
    Pattern("halo", quick=("irecv-isend",), quick_on="many", largest=_MIB),
    Pattern("collective", quick=("barrier", "bcast", "allreduce"), largest=64 * _KIB, largest_many=64 * _KIB),
    Pattern(
        "nonblocking",
        ("barrier", "bcast", "allreduce", "alltoall"),
        quick=("allreduce",),
        quick_on="many",
        largest=_MIB,
        largest_many=64 * _KIB,
    ),
    Pattern("neighbourhood", largest=_MIB, largest_many=64 * _KIB),
    Pattern("incast", on="many", largest_many=64 * _KIB),
    Pattern("persistent", on="two", largest=256 * _KIB),
    Pattern("datatype", on="two", largest=_MIB),
    Pattern("burst", on="two", largest=256 * _KIB),
    Pattern("partitioned", on="two", largest=_MIB),
    # A library may lack a synchronisation mode over a fabric, which ends its launch.
    Pattern("onesided", on="two", largest=_MIB, alone=True),
    Pattern("startup", alone=True, has_sizes=False),
    # The original variant hangs under MPICH 5 over UCX.
    Pattern("radix", ("non-blocking",), quick=("non-blocking",), quick_on="two", alone=True, has_sizes=False),
)


@dataclass(frozen=True)
class Testbed:
    """Hosts, links and ranks. `topology` is a lab's; None is this machine, where all ranks share memory.

    A budget is divided among testbeds by their `weight`.
    """

    name: str
    title: str
    topology: str | None
    link: LinkSpec
    ranks: int
    competitors: tuple[str, ...] = ("tcp", "ucx")
    quick: bool = False
    weight: float = 1.0


TESTBEDS = (
    Testbed("pair", "Two hosts, MTU 1500", "pair", LinkSpec(), 2, quick=True, weight=1.5),
    Testbed("pair-offloads", "Two hosts, MTU 1500, offloads on", "pair", LinkSpec(offloads=True), 2),
    Testbed("pair-9000", "Two hosts, MTU 9000", "pair", LinkSpec(mtu=9000), 2),
    Testbed("pair-1gbit", "Two hosts, 1 Gb/s", "pair", LinkSpec(rate_bit_s=_GBIT), 2),
    Testbed("star4-1gbit", "Four hosts, 1 Gb/s", "star:4", LinkSpec(rate_bit_s=_GBIT), 4, quick=True),
    Testbed("star8-1gbit", "Eight hosts, 1 Gb/s", "star:8", LinkSpec(rate_bit_s=_GBIT), 8, weight=2.0),
    Testbed("host", "One host, shared memory", None, LinkSpec(), 2, competitors=("shm",), quick=True),
)


def parse_testbeds(text: str | None, *, quick: bool) -> tuple[Testbed, ...]:
    """Read `pair,host`; None selects the testbeds of the form. WrongUse lists the known testbeds."""
    if text is None:
        return tuple(testbed for testbed in TESTBEDS if testbed.quick or not quick)
    testbeds = {testbed.name: testbed for testbed in TESTBEDS}
    return tuple(testbeds[name] for name in _known_names(text, testbeds, "testbed"))


def parse_patterns(text: str | None) -> tuple[Pattern, ...]:
    """Read test names, `pingpong,alltoall`; None selects all patterns. WrongUse lists the known ones."""
    if text is None:
        return PATTERNS
    chosen = _known_names(text, [pattern.test for pattern in PATTERNS], "pattern")
    return tuple(pattern for pattern in PATTERNS if pattern.test in chosen)


def _known_names(text: str, known_names: "dict[str, Testbed] | list[str]", kind: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in known_names:
            raise unknown(kind, name, known_names)
    return names
