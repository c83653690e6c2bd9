# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names of subjects: `llc2+xdp/block` is LLC type 2 over AF_XDP with a blocking wait.

`mpich-5/tcp+eager=65536` is the MPI library mpich-5 over TCP with its eager limit set. `tcp+mtu=9000` is TCP on the
links with this MTU, in a run that has several.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

PACKET = "packet"
XDP_LINKS = ("xdp", "xdp-generic", "xdp-native", "xdp-zerocopy")
# Our frames in datagrams; the transport of this name is the kernel's own.
UDP = "udp"
LINKS = (PACKET, *XDP_LINKS, UDP)
FLOOR = "floor"
# Subjects over libfabric: with our own provider, or with another one, which is in the name.
LIBFABRIC = "libfabric"
OWN_PROVIDER = "barewire"
# Libfabric's layers over a provider for reliable tagged messages.
_LAYERED = {"tcp": "tcp;ofi_rxm", "udp": "udp;ofi_rxd"}
_LIBFABRIC = re.compile(rf"{LIBFABRIC}(?:-([a-z0-9_]+))?")
# Fabrics of MPI jobs; any other libfabric provider is ofi-NAME.
MPI_FABRICS = ("barewire", "tcp", "udp", "ucx", "shm")
OTHER_PROVIDER = re.compile(r"ofi-[a-z0-9_]+")
# The factor of a subject that belongs to the link: subjects are compared with others on the same link.
MTU = "mtu"
_MPI_NAME = re.compile(
    rf"([\w.-]+)/({'|'.join(MPI_FABRICS)}|{OTHER_PROVIDER.pattern})((?:\+[a-z]+=[a-z0-9]+)*)", re.ASCII
)


Factors = tuple[tuple[str, str], ...]


class SubjectName(NamedTuple):
    """A subject's parts; `link` is the link of its frames, AF_PACKET for transports without a choice.

    `settings` are the values of factors of which the run has several.
    """

    transport: str
    link: str = PACKET
    wait: str = "spin"
    settings: Factors = ()

    def __str__(self) -> str:
        """Return the name without default parts; raw frames over AF_XDP are named after the link."""
        if self.link == PACKET:
            base = self.transport
        else:
            is_named_after_link = self.transport == "raw" and self.link in XDP_LINKS
            base = self.link if is_named_after_link else f"{self.transport}+{self.link}"
        base += _written(self.settings)
        return base if self.wait == "spin" else f"{base}/{self.wait}"


def read_subject(name: str) -> SubjectName:
    """Parse a subject's name; an unknown name is a transport."""
    base, _, wait = name.partition("/")
    transport, *parts = base.split("+")
    link = "+".join(part for part in parts if "=" not in part)
    if transport in XDP_LINKS:
        transport, link = "raw", transport
    return SubjectName(transport, link or PACKET, wait or "spin", _read(part for part in parts if "=" in part))


def floor_link(link: str) -> str:
    """Return the link of the floor beside which subjects over `link` are shown."""
    return PACKET if link == UDP else link


def provider_of(transport: str) -> str | None:
    """Return the provider of a libfabric transport in libfabric's spelling; None for any other transport."""
    match = _LIBFABRIC.fullmatch(transport)
    if match is None:
        return None
    return OWN_PROVIDER if match[1] is None else _LAYERED.get(match[1], match[1])


def is_floor(name: str) -> bool:
    """Return whether this is a minimal program, over any link."""
    return read_subject(name).transport == FLOOR


class MpiName(NamedTuple):
    """The parts of an MPI subject's name; `settings` are those beyond the fabric, in the given order."""

    library: str
    fabric: str
    settings: Factors = ()

    def __str__(self) -> str:
        """Return the name that `read_mpi_subject` parses."""
        return f"{self.library}/{self.fabric}{_written(self.settings)}"


def read_mpi_subject(name: str) -> MpiName | None:
    """Parse an MPI subject's name; None for any other name."""
    match = _MPI_NAME.fullmatch(name)
    if match is None:
        return None
    return MpiName(match[1], match[2], _read(match[3].split("+")[1:]))


def mtu_of(subject: str) -> int | None:
    """Return the MTU in a subject's name; None if it has none, because the run has one MTU."""
    value = dict(_parsed(subject).settings).get(MTU, "")
    return int(value) if value.isdecimal() else None


def on_link_of(name: str, subject: str) -> str:
    """Return `name` with the MTU of `subject` in it, unless it has one itself."""
    mtu = mtu_of(subject)
    if mtu is None or mtu_of(name) is not None:
        return name
    parsed = _parsed(name)
    return str(parsed._replace(settings=(*parsed.settings, (MTU, str(mtu)))))


def baseline_of(subject: str, baseline: str) -> str:
    """Return the name of the subject that `subject` is compared with.

    For an MPI library `baseline` may be a fabric: this library over that fabric, without further settings. In a run of
    several MTUs it is the baseline with the subject's MTU, unless `baseline` has one itself.
    """
    mpi = read_mpi_subject(subject)
    name = baseline if mpi is None or "/" in baseline else f"{mpi.library}/{baseline}"
    return on_link_of(name, subject)


def _parsed(name: str) -> "SubjectName | MpiName":
    return read_mpi_subject(name) or read_subject(name)


def _written(settings: Factors) -> str:
    return "".join(f"+{name}={value}" for name, value in settings)


def _read(parts: Iterable[str]) -> Factors:
    return tuple((name, value) for name, _, value in (part.partition("=") for part in parts))
