# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Collects links during the construction of a network."""

from barewire.errors import WrongUse
from barewire.topology.network import Port


class Links:
    """Collects links, each once, into the mapping of `Network.peers`."""

    def __init__(self) -> None:
        """Start without links."""
        self.peers: dict[Port, Port] = {}

    def add(self, first: Port, second: Port) -> None:
        """Join two free ports; WrongUse if one is in use."""
        if first.node == second.node:
            raise WrongUse(f"the link {first} to {second} joins a node to itself")
        for port in (first, second):
            if port in self.peers:
                raise WrongUse(f"port {port} is at two links: one to {self.peers[port]}, and {first} to {second}")
        self.peers[first], self.peers[second] = second, first
