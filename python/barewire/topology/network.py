# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switches, hosts and the links between their ports; an immutable value without I/O.

    h1:1 ─── 1:s13:3 ─── 1:s5:3 ─── 1:s1        a node's name and its port number on either side of each link

A port represents the direction in which it sends, so a path is the output ports of its switches, in order; the source
host's own port is implied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barewire.errors import WrongUse

if TYPE_CHECKING:
    import networkx as nx


class Port(NamedTuple):
    """A node's port by its OpenFlow number (from 1; a host has port 1), as the sending end of one direction.

    A tuple, because large networks hash and compare millions of ports.
    """

    node: str
    number: int

    def __str__(self) -> str:
        """Return `s1:3`."""
        return f"{self.node}:{self.number}"


# The output port of every switch from the source's to the destination's; the last leads to the destination host.
Path = tuple[Port, ...]


@dataclass(frozen=True)
class Network:
    """A whole network. `peers` has each link twice, once for each end.

    `rates_bit_s` has the known rates of output ports.
    """

    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    peers: Mapping[Port, Port]
    rates_bit_s: Mapping[Port, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject an inconsistent network."""
        nodes = {*self.switches, *self.hosts}
        if len(nodes) < len(self.switches) + len(self.hosts):
            raise WrongUse("a topology names a node twice")
        for port, peer in self.peers.items():
            if not {port.node, peer.node} <= nodes:
                raise WrongUse(f"the link {port} to {peer} ends at a node that the topology does not have")
            if self.peers.get(peer) != port or port.node == peer.node:
                raise WrongUse(f"port {port} is in two links, or linked to itself")

    @cached_property
    def ports(self) -> Mapping[str, tuple[Port, ...]]:
        """Each node's linked ports, by number."""
        by_node: dict[str, list[Port]] = {node: [] for node in (*self.switches, *self.hosts)}
        for port in sorted(self.peers):
            by_node[port.node].append(port)
        return {node: tuple(ports) for node, ports in by_node.items()}

    @cached_property
    def graph(self) -> "nx.MultiDiGraph[str]":
        """Each direction of each link as an edge whose key is its sending port."""
        # Imported late: it takes 0.2 s, and labs without switches, the usual case of `barewire run`, need no graph.
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        graph.add_nodes_from((*self.switches, *self.hosts))
        for port, peer in self.peers.items():
            graph.add_edge(port.node, peer.node, port)  # type: ignore[arg-type,unused-ignore] # any hashable is a key
        return graph

    @cached_property
    def host_numbers(self) -> Mapping[str, int]:
        """Each host's index among the hosts, from 0."""
        return {host: number for number, host in enumerate(self.hosts)}

    @cached_property
    def usual_rate_bit_s(self) -> float:
        """Assumed rate of directions without a known one: the median of the known ones, or 1 Gb/s."""
        from statistics import median

        return float(median(self.rates_bit_s.values())) if self.rates_bit_s else 1e9

    def rate_byte_s(self, port: Port) -> float:
        """Return a port's rate in bytes per second."""
        return self.rates_bit_s.get(port, self.usual_rate_bit_s) / 8

    def attachment(self, host: str) -> Port | None:
        """Return the switch port that a host is attached to; None if there is none."""
        ports = self.ports.get(host, ())
        return self.peers[ports[0]] if ports else None


def shortest_paths(network: Network, source: str, destination: str) -> list[Path]:
    """Return all shortest paths between two hosts; [] if there is none.

    The paths are sorted by their nodes' and ports' numbers, so that their order is deterministic.
    """
    import networkx as nx

    switches = network.graph.subgraph([*network.switches, source, destination])
    is_routable = source in switches and destination in switches and source != destination
    if not is_routable or not nx.has_path(switches, source, destination):
        return []
    all_paths: list[Path] = []
    for nodes in nx.all_shortest_paths(nx.DiGraph(switches), source, destination):
        paths: list[Path] = [()]
        for node, following in list(pairwise(nodes))[1:]:
            between = [port for port in network.ports[node] if network.peers[port].node == following]
            paths = [(*path, port) for path in paths for port in between]
        all_paths += paths
    return sorted(all_paths, key=lambda path: [(natural(port.node), port.number) for port in path])


def natural(name: str) -> tuple[str, int]:
    """Return a sorting key that orders s2 before s10."""
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name[: len(name) - digits], int(name[len(name) - digits :] or 0))
