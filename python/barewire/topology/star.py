# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All hosts on one switch, limited only by their own links: the reference for every other network."""

from barewire.errors import WrongUse
from barewire.topology.links import Links
from barewire.topology.network import Network, Port


def star(hosts: int) -> Network:
    """Return h1 to hN on the ports 1 to N of s1."""
    if hosts < 2:
        raise WrongUse(f"a star must have at least 2 hosts, not {hosts}")
    links = Links()
    for number in range(1, hosts + 1):
        links.add(Port(f"h{number}", 1), Port("s1", number))
    return Network(("s1",), tuple(f"h{number}" for number in range(1, hosts + 1)), links.peers)
