# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths through a folded Clos network (a fat-tree) by edge colouring: any permutation of hosts at line rate.

Without its edge switches a fat-tree consists of planes, and each edge switch has one link to each plane:

    plane 0: s5 s7 s9 s11  s1 s2        plane 1: s6 s8 s10 s12  s3 s4

A flow's plane is the colour of an edge from its source's to its destination's switch: colours that are even at each
switch give even loads on its links. A plane is a smaller Clos network: flows enter and leave at its lowest switches,
and without these it consists of planes again. Source: Beneš 1965; Hwang 1983.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from barewire.sdn.strategies.colouring import colour_evenly
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Network, Path, Port
from barewire.topology.network import natural

Pair = tuple[str, str]


class NoClosError(ValueError):
    """The network, possibly after failures, is not a Clos network."""


@dataclass(frozen=True)
class _RoutingDemand:
    """A flow between two switches of one level, with the ports found so far before and after them."""

    pair: Pair
    group: Hashable
    enters: str
    leaves: str
    up: Path = ()
    down: Path = ()


def clos_paths(network: Network, groups: Mapping[Pair, Hashable], jobs: Mapping[Pair, Hashable]) -> Mapping[Pair, Path]:
    """Return a path for each pair of hosts, with each switch's flows even over its links. NoClosError if impossible.

    Pairs of one group probably send at the same time: their paths are separated first. Each job gets separate planes,
    as many as it has hosts on any one switch; NoClosError if there are not enough.
    """
    routes = paths_of(network)
    routes.expect([host for pair in groups for host in pair])
    candidates = {pair: routes.between(*pair) for pair in groups}
    edge = frozenset({port.node for host in network.hosts if (port := network.attachment(host))})
    edge -= routes.inner(groups, edge)
    demands: dict[Hashable, list[_RoutingDemand]] = {}
    chosen: dict[Pair, Path] = {}
    for pair, group in groups.items():
        first, last = network.attachment(pair[0]), network.attachment(pair[1])
        if not candidates[pair] or first is None or last is None or not {first.node, last.node} <= edge:
            raise NoClosError(f"{pair[0]} or {pair[1]} is not on an edge switch")
        if first.node == last.node:
            chosen[pair] = (last,)
        else:
            demands.setdefault(jobs[pair], []).append(_RoutingDemand(pair, group, first.node, last.node, (), (last,)))
    planes = _planes(network, frozenset(network.switches) - edge)
    for job, job_planes in zip(demands.values(), _allocate_planes(list(demands.values()), planes), strict=True):
        _spread(network, job, edge, job_planes, chosen)
    for pair, path in chosen.items():
        if path not in candidates[pair]:
            raise NoClosError(f"no plane has a shortest path from {pair[0]} to {pair[1]}")
    return chosen


def _allocate_planes(
    jobs: Sequence[Sequence[_RoutingDemand]], planes: Sequence[frozenset[str]]
) -> list[list[frozenset[str]]]:
    """Each job's planes: as many as its senders or receivers on one switch, then the rest round-robin."""
    if len(jobs) == 1:
        return [list(planes)]
    counts: list[int] = []
    for job in jobs:
        hosts = {("from", demand.enters, demand.pair[0]) for demand in job} | {
            ("to", demand.leaves, demand.pair[1]) for demand in job
        }
        counts.append(max(Counter(end[:2] for end in hosts).values()))
    spare = len(planes) - sum(counts)
    if spare < 0:
        raise NoClosError(f"{len(jobs)} jobs need more planes than the {len(planes)} there are")
    counts = [count + spare // len(jobs) + (number < spare % len(jobs)) for number, count in enumerate(counts)]
    ends = list(accumulate(counts, initial=0))
    return [list(planes[begin:end]) for begin, end in pairwise(ends)]


def _spread(
    network: Network,
    demands: Sequence[_RoutingDemand],
    lowest: frozenset[str],
    planes: Sequence[frozenset[str]],
    chosen: dict[Pair, Path],
) -> None:
    """Assign each demand to a plane, then route it within the plane."""
    links = [_links(network, lowest, plane) for plane in planes]
    for demand in demands:
        for end in (demand.enters, demand.leaves):
            if not links or any(end not in plane_links for plane_links in links):
                raise NoClosError(f"{end} does not have one link to each plane above it")
    edges = [(demand.enters, demand.leaves) for demand in demands]
    colours = colour_evenly(edges, [demand.group for demand in demands], len(planes))
    for number, plane in enumerate(planes):
        inside: list[_RoutingDemand] = []
        for demand, colour in zip(demands, colours, strict=True):
            if colour != number:
                continue
            up = (*demand.up, links[number][demand.enters])
            back = links[number][demand.leaves]
            top, down = network.peers[back], (network.peers[back], *demand.down)
            enters = network.peers[up[-1]].node
            if enters == top.node:
                chosen[demand.pair] = (*up, *down)
            else:
                inside.append(_RoutingDemand(demand.pair, demand.group, enters, top.node, up, down))
        if inside:
            bottom = frozenset(network.peers[port].node for port in links[number].values())
            _spread(network, inside, bottom, _planes(network, plane - bottom), chosen)


def _planes(network: Network, switches: frozenset[str]) -> list[frozenset[str]]:
    """The connected components, in the order of their first switches."""
    parts: list[frozenset[str]] = []
    unvisited = set(switches)
    for start in sorted(switches, key=natural):
        if start not in unvisited:
            continue
        part, waiting = {start}, [start]
        while waiting:
            for port in network.ports[waiting.pop()]:
                peer = network.peers[port].node
                if peer in switches and peer not in part:
                    part.add(peer)
                    waiting.append(peer)
        unvisited -= part
        parts.append(frozenset(part))
    return parts


def _links(network: Network, lowest: Iterable[str], plane: frozenset[str]) -> dict[str, Port]:
    """The port of each switch that has exactly one link into the plane."""
    found: dict[str, Port] = {}
    for switch in lowest:
        into = [port for port in network.ports[switch] if network.peers[port].node in plane]
        if len(into) == 1:
            found[switch] = into[0]
    return found
