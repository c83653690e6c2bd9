# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switches, hosts and the links between their ports; a value that never changes, without I/O.

    h1:1 ─── 1:s13:3 ─── 1:s5:3 ─── 1:s1        a node's name and its port number on either side of each link

A port stands for the direction in which it sends, so a path is the output ports of its switches, the first switch's
first; what the source host itself sends through needs no choice and is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from barewire.errors import WrongUse

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, order=True)
class Port:
    """A node's port by its OpenFlow number (1 upwards; a host has port 1), as the sending end of one direction."""

    node: str
    number: int

    def __str__(self) -> str:
        """Return `s1:3`."""
        return f"{self.node}:{self.number}"


# The output port of every switch from the source's to the destination's; the last leads to the destination host.
Path = tuple[Port, ...]


@dataclass(frozen=True)
class Network:
    """A whole network. `peers` has each link twice, once from either end.

    `rates_bit_s` are the rates of output ports that are known; a direction without one counts as any other.
    """

    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    peers: Mapping[Port, Port]
    rates_bit_s: Mapping[Port, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no network can be."""
        nodes = {*self.switches, *self.hosts}
        if len(nodes) < len(self.switches) + len(self.hosts):
            raise WrongUse("a topology names a node twice")
        for port, peer in self.peers.items():
            if not {port.node, peer.node} <= nodes:
                raise WrongUse(f"the link {port} to {peer} ends at a node that the topology does not have")
            if self.peers.get(peer) != port or port.node == peer.node:
                raise WrongUse(f"port {port} is at two links, or at one with itself")

    @cached_property
    def ports(self) -> Mapping[str, tuple[Port, ...]]:
        """Each node's ports with a link, by number."""
        found: dict[str, list[Port]] = {node: [] for node in (*self.switches, *self.hosts)}
        for port in sorted(self.peers):
            found[port.node].append(port)
        return {node: tuple(ports) for node, ports in found.items()}

    @cached_property
    def graph(self) -> "nx.MultiDiGraph[str]":
        """Each direction of each link as an edge, whose key is its sending port."""
        # Here, not above: it takes 0.2 s, and a lab without switches, so most of `barewire run`, has no graph.
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        graph.add_nodes_from((*self.switches, *self.hosts))
        for port, peer in self.peers.items():
            graph.add_edge(port.node, peer.node, port)  # type: ignore[arg-type,unused-ignore] # any hashable is a key
        return graph

    @cached_property
    def host_numbers(self) -> Mapping[str, int]:
        """Each host's place among the hosts, from 0."""
        return {host: number for number, host in enumerate(self.hosts)}

    @cached_property
    def usual_rate_bit_s(self) -> float:
        """What a direction without a known rate counts as: the median of the known ones, 1 Gb/s where none is known."""
        from statistics import median

        return float(median(self.rates_bit_s.values())) if self.rates_bit_s else 1e9

    def rate_byte_s(self, port: Port) -> float:
        """Return what a port can send, in bytes a second."""
        return self.rates_bit_s.get(port, self.usual_rate_bit_s) / 8

    def attachment(self, host: str) -> Port | None:
        """Return the switch port that a host hangs on; None if it hangs on none."""
        at = self.ports.get(host, ())
        return self.peers[at[0]] if at else None


def shortest_paths(network: Network, source: str, destination: str) -> list[Path]:
    """Return all shortest paths between two hosts; [] if there is none.

    They come in the order of their nodes' and ports' numbers, in every run, so `the first path` means something.
    """
    import networkx as nx

    switches = network.graph.subgraph([*network.switches, source, destination])
    known = source in switches and destination in switches and source != destination
    if not known or not nx.has_path(switches, source, destination):
        return []
    found: list[Path] = []
    for nodes in nx.all_shortest_paths(nx.DiGraph(switches), source, destination):
        paths: list[Path] = [()]
        for node, following in list(pairwise(nodes))[1:]:
            between = [port for port in network.ports[node] if network.peers[port].node == following]
            paths = [(*path, port) for path in paths for port in between]
        found += paths
    return sorted(found, key=lambda path: [(natural(port.node), port.number) for port in path])


def natural(name: str) -> tuple[str, int]:
    """Return what sorts s2 before s10."""
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name[: len(name) - digits], int(name[len(name) - digits :] or 0))
