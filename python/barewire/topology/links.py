# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Links while a network is being put together."""

from barewire.errors import WrongUse
from barewire.topology.network import Port


class Links:
    """Collects links, each once, into what `Network.peers` is."""

    def __init__(self) -> None:
        """Begin without any."""
        self.peers: dict[Port, Port] = {}

    def add(self, one: Port, other: Port) -> None:
        """Join two ports that are free; WrongUse if one is not."""
        if one.node == other.node:
            raise WrongUse(f"the link {one} to {other} joins a node to itself")
        for port in (one, other):
            if port in self.peers:
                raise WrongUse(f"port {port} is at two links: one to {self.peers[port]}, and {one} to {other}")
        self.peers[one], self.peers[other] = other, one
