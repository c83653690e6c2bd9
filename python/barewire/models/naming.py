# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a subject's name says: `llc2+xdp/block` is LLC type 2 over AF_XDP with a blocking wait."""

from typing import NamedTuple

PACKET = "packet"
XDP_LINKS = ("xdp", "xdp-generic", "xdp-native", "xdp-zerocopy")
LINKS = (PACKET, *XDP_LINKS)
FLOOR = "floor"


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


def is_floor(name: str) -> bool:
    """Whether this is a minimal program's result, over whatever link."""
    return read_subject(name).transport == FLOOR
