# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the scoreboard measures: patterns of the C suite, a line each; and the testbeds that it measures them on."""

from dataclasses import dataclass
from typing import Literal

from barewire.errors import WrongUse
from barewire.lab import LinkSpec

_KIB, _MIB = 1 << 10, 1 << 20
SIZES_FULL = (8, 128, *(kib * _KIB for kib in (1, 2, 4, 8, 16, 32, 64, 256)), _MIB, 4 * _MIB)
SIZES_QUICK = (8, _KIB, 4 * _KIB, 16 * _KIB, 64 * _KIB, _MIB)
SIZES_QUICK_MANY = (8, 4 * _KIB, 64 * _KIB)
_GBIT = 10**9

Ranks = Literal["two", "many", "any"]


@dataclass(frozen=True)
class Pattern:
    """A test of the C suite on the scoreboard. A pattern measured with its own options twice is two lines.

    `variants` are measured in the full form, all of the test's if there is none named, `quick` in the quick one; `on`
    says for which number of ranks, `quick_on` for which in the quick form. Sizes end at `largest`, with more than two
    ranks at `largest_many`. Whether more or less is better, the test's unit says. Only what is `alone` has launches of
    its own: a measurement of starting, or one that has no sizes (kernels).
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

    def is_for(self, ranks: int, *, quick: bool) -> bool:
        """Whether so many ranks measure it in this form."""
        allowed = (self.on, self.quick_on) if quick else (self.on,)
        return (bool(self.quick) or not quick) and {*allowed} <= {"any", "two" if ranks == 2 else "many"}

    def sizes(self, ranks: int, *, quick: bool) -> tuple[int, ...]:
        """Its message sizes in bytes."""
        largest = self.largest if ranks == 2 else self.largest_many
        of_quick = SIZES_QUICK if ranks == 2 else SIZES_QUICK_MANY
        return tuple(size for size in (of_quick if quick else SIZES_FULL) if size <= largest)


PATTERNS = (
    Pattern(
        "pingpong",
        ("blocking-standard", "blocking-synchronous", "nonblocking-standard"),
        quick=("blocking-standard",),
        on="two",
    ),
    Pattern("exchange", quick=("nonblocking-receive-standard", "sendrecv"), on="two"),
    Pattern("exchange", ("sendrecv",), on="many", options=("--pairs", "0")),
    # Timed where it arrives: on a busy machine one stretch is a burst and the next a wait. Not for the quick form.
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
    # A library may lack a synchronisation over a fabric, which ends its launch.
    Pattern("onesided", on="two", largest=_MIB, alone=True),
    Pattern("startup", alone=True, has_sizes=False),
    # The original variant hangs under MPICH 5 over UCX.
    Pattern("radix", ("non-blocking",), quick=("non-blocking",), quick_on="two", alone=True, has_sizes=False),
)


@dataclass(frozen=True)
class Testbed:
    """Hosts, links and ranks. `topology` is a lab's; None is this machine by itself, where all ranks share memory.

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
    """Read `pair,host`; those of the form where None is given. WrongUse names those there are."""
    if text is None:
        return tuple(one for one in TESTBEDS if one.quick or not quick)
    known = {one.name: one for one in TESTBEDS}
    return tuple(known[name] for name in _known(text, known, "testbed"))


def parse_patterns(text: str | None) -> tuple[Pattern, ...]:
    """Read `pingpong,alltoall`, names of tests; all where None is given. WrongUse names those there are."""
    if text is None:
        return PATTERNS
    chosen = _known(text, [one.test for one in PATTERNS], "pattern")
    return tuple(one for one in PATTERNS if one.test in chosen)


def _known(text: str, known: "dict[str, Testbed] | list[str]", what: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUse(f"unknown {what} '{unknown[0]}'; there are: {', '.join(dict.fromkeys(known))}")
    return names
