# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Subjects of the probe: transport, link and waiting policy; and its tests."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from barewire.errors import WrongUse, unknown
from barewire.models import catalogue
from barewire.models.catalogue import Program, names_of_tests
from barewire.models.naming import (
    FLOOR,
    LIBFABRIC,
    LINKS,
    MTU,
    OWN_PROVIDER,
    PACKET,
    XDP_LINKS,
    SubjectName,
    floor_link,
    provider_of,
)

TESTS = names_of_tests(Program.probe)
TRANSPORTS = tuple(transport.name for transport in catalogue.TRANSPORTS)
SOCKETS = ("tcp", "udp")
BROKERED = tuple(transport.name for transport in catalogue.TRANSPORTS if transport.brokered)
TUNED = tuple(transport.name for transport in catalogue.TRANSPORTS if transport.tuned)
_WITH_LINKS = (FLOOR, *(transport.name for transport in catalogue.TRANSPORTS if transport.has_link))
WAITS = ("spin", "adaptive", "block", "busypoll")
# Number of individual LSAPs available to users; the same bound as in the probe.
PROCESSES_MAX = 111

_T = TypeVar("_T")


@dataclass(frozen=True)
class Subject:
    """A transport of the probe over a link with a waiting policy; or a floor, a separate program that spins."""

    transport: str
    wait: str = "spin"
    link: str = PACKET
    # Values of factors of which the run has several: tuning, and the link's MTU.
    tuned: tuple[tuple[str, int], ...] = ()
    mtu: int | None = None

    @property
    def name(self) -> str:
        """`tcp` for a spinning subject, `tcp/block` for any other: spinning is usual in message passing."""
        factors = self.tuned if self.mtu is None else (*self.tuned, (MTU, self.mtu))
        settings = tuple((name, str(value)) for name, value in factors)
        return str(SubjectName(self.transport, self.link, self.wait, settings))

    @property
    def provider(self) -> str | None:
        """The libfabric provider; None for transports without libfabric."""
        return provider_of(self.transport)

    @property
    def has_link(self) -> bool:
        """Whether the transport has a choice of links."""
        return self.transport in _WITH_LINKS

    @property
    def is_floor(self) -> bool:
        """Whether this is a minimal program instead of a transport."""
        return self.transport == FLOOR


def floors_of(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Return the floors that limit these subjects: one for each link; frames in datagrams have that of frames."""
    return _unique(Subject(FLOOR, link=floor_link(subject.link), mtu=subject.mtu) for subject in subjects)


def check_tuned(subjects: Sequence[Subject]) -> None:
    """Reject tuning for subjects that have none."""
    if not any(subject.transport in TUNED for subject in subjects):
        raise WrongUse(f"--tuned applies to {' and '.join(TUNED)}: add one of them to --transport")


def swept(
    subjects: Sequence[Subject], tuned: Mapping[str, Sequence[int]], mtus: Sequence[int | None]
) -> tuple[Subject, ...]:
    """Return each subject with each combination of values: of tuning, where it has any, and of the link's MTU."""
    if tuned:
        check_tuned(subjects)
    return tuple(
        replace(subject, tuned=values, mtu=mtu)
        for subject in subjects
        for values in _combinations(tuned if subject.transport in TUNED else {})
        for mtu in mtus
    )


def _combinations(values: Mapping[str, Sequence[int]]) -> Iterator[tuple[tuple[str, int], ...]]:
    for chosen in itertools.product(*values.values()):
        yield tuple(zip(values, chosen, strict=True))


def parse_tests(text: str) -> tuple[str, ...]:
    """Read a list of tests such as `pingpong,stream`; WrongUse lists the known tests."""
    return _unique(_known(name, TESTS, "test") for name in text.split(","))


def parse_processes(text: str) -> tuple[int, ...]:
    """Read numbers of processes such as `1,2,4`, ascending; WrongUse if invalid."""
    numbers = [int(part) if re.fullmatch(r"\s*[0-9]{1,3}\s*", part) else 0 for part in text.split(",")]
    if not all(1 <= number <= PROCESSES_MAX for number in numbers):
        raise WrongUse(
            f"'{text}' are not numbers of processes; write 1 to {PROCESSES_MAX} as 1,2,4. "
            "There are no more service access points"
        )
    return _unique(sorted(numbers))


def parse_subjects(transports: str, waits: str, links: str = PACKET) -> tuple[Subject, ...]:
    """Read and combine lists of transports, waiting policies and links; WrongUse lists the known values.

    TCP, UDP and libfabric have no choice of links and are measured once; `xdp` is raw over AF_XDP. Subjects that
    cannot be busy-polled are omitted if there are others.
    """
    chosen_transports = _unique(_known_transport(name) for name in transports.split(","))
    chosen_waits = _unique(_known(name, WAITS, "waiting policy") for name in waits.split(","))
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
        return tuple(link for link in chosen if link in XDP_LINKS) or ("xdp",)
    return chosen


def _known_transport(name: str) -> str:
    """Return a transport of the list, or libfabric over any other provider, whose existence is not checked."""
    name = name.strip()
    if name in TRANSPORTS or (provider_of(name) is not None and name != f"{LIBFABRIC}-{OWN_PROVIDER}"):
        return name
    raise unknown("transport", name, TRANSPORTS, f", and {LIBFABRIC}-NAME for any other provider")


def _has_busypoll(subject: Subject) -> bool:
    return subject.transport in SOCKETS or subject.link in XDP_LINKS


def _known(name: str, names: tuple[str, ...], kind: str) -> str:
    name = name.strip()
    if name not in names:
        raise unknown(kind, name, names)
    return name


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
