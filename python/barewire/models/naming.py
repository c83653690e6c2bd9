# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a subject's name says: `llc2+xdp/block` is LLC type 2 over AF_XDP with a blocking wait."""

import re
from typing import NamedTuple

PACKET = "packet"
XDP_LINKS = ("xdp", "xdp-generic", "xdp-native", "xdp-zerocopy")
LINKS = (PACKET, *XDP_LINKS)
FLOOR = "floor"
# Subjects of libfabric: over our own provider, or over another one, which is in the name.
LIBFABRIC = "libfabric"
OWN_PROVIDER = "barewire"
# What libfabric layers over a provider so that it carries tagged messages reliably.
_LAYERED = {"tcp": "tcp;ofi_rxm", "udp": "udp;ofi_rxd"}
_LIBFABRIC = re.compile(rf"{LIBFABRIC}(?:-([a-z0-9_]+))?")


class SubjectName(NamedTuple):
    """A subject's parts; `link` is what carries its frames, and AF_PACKET for who has no choice."""

    transport: str
    link: str = PACKET
    wait: str = "spin"

    def __str__(self) -> str:
        """Only what is not the rule is in the name; raw frames over AF_XDP have its name."""
        if self.link == PACKET:
            base = self.transport
        else:
            base = self.link if self.transport == "raw" else f"{self.transport}+{self.link}"
        return base if self.wait == "spin" else f"{base}/{self.wait}"


def read_subject(name: str) -> SubjectName:
    """Take a name apart; a name of nobody's is a transport."""
    base, _, wait = name.partition("/")
    transport, _, link = base.partition("+")
    if transport in XDP_LINKS:
        transport, link = "raw", transport
    return SubjectName(transport, link or PACKET, wait or "spin")


def provider_of(transport: str) -> str | None:
    """The provider of a libfabric transport, as libfabric writes it; None for any other transport."""
    match = _LIBFABRIC.fullmatch(transport)
    if match is None:
        return None
    return OWN_PROVIDER if match[1] is None else _LAYERED.get(match[1], match[1])


def is_floor(name: str) -> bool:
    """Whether this is a minimal program's result, over whatever link."""
    return read_subject(name).transport == FLOOR
