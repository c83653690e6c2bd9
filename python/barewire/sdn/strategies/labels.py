# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Labels: which path each one names to a destination. Pure.

The label of a frame is a number below `Labels.count`. Towards each edge switch, a switch with n next hops on shortest
paths takes hop (label div s) mod n. Its stride s is the number of choices that a frame may have behind it, so that all
labels together name all shortest paths:

    fat-tree:4, label    0 1 2 3        s13: stride 1, n 2      s5, s6: stride 2, n 2
    to another pod       by s5 s6 s5 s6, then by s1 s3 s2 s4
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from barewire.topology import Network, Port

# As many as Barewire's senders choose among (LABELS_MAX in crates/llc/src/bounds.rs).
LABELS_MAX = 64


@dataclass(frozen=True)
class Choice:
    """The next hops of a switch towards a destination, and its stride."""

    hops: tuple[Port, ...]
    stride: int

    def hop(self, label: int) -> Port:
        """Return the output port of frames with this label."""
        return self.hops[label // self.stride % len(self.hops)]

    @property
    def paths(self) -> int:
        """Number of labels that tell all choices up to here apart."""
        return self.stride * len(self.hops)


class Labels:
    """The labels of one network, whose hosts are attached to the switches `edges`."""

    def __init__(self, network: Network, edges: Iterable[str]) -> None:
        """Compute on demand."""
        self._network = network
        self._edges = frozenset(edges) & set(network.switches)
        self._choices: dict[str, Mapping[str, Choice]] = {}

    def towards(self, switch: str) -> Mapping[str, Choice]:
        """Return the choice of every other switch on a shortest path from an edge switch to this one."""
        if switch not in self._choices:
            self._choices[switch] = self._towards(switch)
        return self._choices[switch]

    @cached_property
    def count(self) -> int:
        """The number of labels that names all shortest paths between edge switches, at most 64."""
        counts = [choice.paths for edge in self._edges for choice in self.towards(edge).values()]
        return min(max(counts, default=1), LABELS_MAX)

    @cached_property
    def _links(self) -> Mapping[str, tuple[Port, ...]]:
        """Each switch's ports to other switches, by number."""
        switches = set(self._network.switches)
        ports = self._network.ports
        return {
            switch: tuple(port for port in ports[switch] if self._network.peers[port].node in switches)
            for switch in self._network.switches
        }

    def _towards(self, destination: str) -> Mapping[str, Choice]:
        distance = {destination: 0}
        order = [destination]
        for node in order:
            for port in self._links[node]:
                peer = self._network.peers[port].node
                if peer not in distance:
                    distance[peer] = distance[node] + 1
                    order.append(peer)
        hops = {
            node: tuple(
                port for port in self._links[node] if distance.get(self._network.peers[port].node) == distance[node] - 1
            )
            for node in order[1:]
        }
        strides = {node: 1 for node in order[1:] if node in self._edges}
        for node in reversed(order[1:]):
            for port in hops[node] if node in strides else ():
                peer = self._network.peers[port].node
                strides[peer] = max(strides.get(peer, 1), strides[node] * len(hops[node]))
        return {node: Choice(hops[node], stride) for node, stride in strides.items() if node != destination}
