# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is measured: a transport, what carries its frames, how its user waits; and by which tests."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from barewire.errors import WrongUse
from barewire.models.naming import FLOOR, LIBFABRIC, LINKS, OWN_PROVIDER, PACKET, SubjectName, provider_of

TESTS = ("pingpong", "stream", "bidirectional")
TRANSPORTS = (
    *("tcp", "udp", "raw", "xdp", "llc1", "llc2", "llc3", "endpoint", "messages"),
    *(LIBFABRIC, f"{LIBFABRIC}-tcp", f"{LIBFABRIC}-udp"),
)
SOCKETS = ("tcp", "udp")
# What a broker gives out sockets for.
BROKERED = ("llc1", "llc2", "llc3", "endpoint", "messages", LIBFABRIC)
# What follows the values of the tuning file that a launch may set for itself.
TUNED = ("endpoint", "messages")
WAITS = ("spin", "adaptive", "block", "busypoll")
# So many individual LSAPs are free for users; the probe counts them as well.
PROCESSES_MAX = 111

_T = TypeVar("_T")


@dataclass(frozen=True)
class Subject:
    """A transport of the probe over a link, with a way of waiting; or a floor, a program of its own that spins."""

    transport: str
    wait: str = "spin"
    link: str = PACKET

    @property
    def name(self) -> str:
        """`tcp` for a spinning one, `tcp/block` for any other: spinning is what message passing does."""
        return str(SubjectName(self.transport, self.link, self.wait))

    @property
    def provider(self) -> str | None:
        """The libfabric provider that carries this; None for what does without libfabric."""
        return provider_of(self.transport)

    @property
    def has_link(self) -> bool:
        """Whether there is a choice of what carries its frames."""
        return self.transport not in SOCKETS and self.provider is None

    @property
    def is_floor(self) -> bool:
        """Whether this is a minimal program and no transport."""
        return self.transport == FLOOR


def floors_of(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """The floors that limit these subjects: one for each link."""
    return _unique(Subject(FLOOR, link=subject.link) for subject in subjects)


def parse_tests(text: str) -> tuple[str, ...]:
    """Read a list of tests such as `pingpong,stream`; WrongUse names those there are."""
    return _unique(_known(name, TESTS, "test") for name in text.split(","))


def parse_processes(text: str) -> tuple[int, ...]:
    """Read numbers of processes such as `1,2,4`, ascending; WrongUse for anything else."""
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= number <= PROCESSES_MAX for number in numbers):
        raise WrongUse(
            f"'{text}' are no numbers of processes; write 1 to {PROCESSES_MAX} as 1,2,4. "
            "More have no service access point of their own"
        )
    return _unique(sorted(numbers))


def parse_subjects(transports: str, waits: str, links: str = PACKET) -> tuple[Subject, ...]:
    """Read lists of transports, waits and links and combine them; WrongUse names those there are.

    TCP, UDP and libfabric have no choice of links and are measured once; `xdp` is raw over AF_XDP.
    What cannot be busy-polled is left out where other subjects are asked for as well.
    """
    chosen_transports = _unique(_known_transport(name) for name in transports.split(","))
    chosen_waits = _unique(_known(name, WAITS, "way of waiting") for name in waits.split(","))
    chosen_links = _unique(_known(name, LINKS, "link") for name in links.split(","))
    subjects = _unique(
        Subject("raw" if transport == "xdp" else transport, wait, link)
        for transport in chosen_transports
        for link in _links_of(transport, chosen_links)
        for wait in chosen_waits
    )
    possible = tuple(subject for subject in subjects if subject.wait != "busypoll" or _has_busypoll(subject))
    if not possible:
        raise WrongUse(
            f"only {', '.join(SOCKETS)} and AF_XDP can be busy-polled; choose --wait spin, adaptive or block"
        )
    return possible


def _links_of(transport: str, chosen: tuple[str, ...]) -> tuple[str, ...]:
    if not Subject(transport).has_link:
        return (PACKET,)
    if transport == "xdp":
        return tuple(link for link in chosen if link != PACKET) or ("xdp",)
    return chosen


def _known_transport(name: str) -> str:
    """A transport of the list, or libfabric over a provider that may or may not be there."""
    name = name.strip()
    if name in TRANSPORTS or (provider_of(name) is not None and name != f"{LIBFABRIC}-{OWN_PROVIDER}"):
        return name
    raise WrongUse(
        f"unknown transport '{name}'; there are: {', '.join(TRANSPORTS)}, and {LIBFABRIC}-NAME for any other provider"
    )


def _has_busypoll(subject: Subject) -> bool:
    return subject.transport in SOCKETS or subject.link != PACKET


def _known(name: str, names: tuple[str, ...], what: str) -> str:
    name = name.strip()
    if name not in names:
        raise WrongUse(f"unknown {what} '{name}'; there are: {', '.join(names)}")
    return name


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
