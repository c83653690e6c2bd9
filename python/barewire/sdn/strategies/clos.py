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
    job: Hashable
    enters: str
    leaves: str
    up: Path = ()
    down: Path = ()


def clos_paths(network: Network, groups: Mapping[Pair, Hashable], jobs: Mapping[Pair, Hashable]) -> Mapping[Pair, Path]:
    """Return a path for each pair of hosts, with each switch's flows even over its links. NoClosError if impossible.

    Pairs of one group probably send at the same time: their paths are separated first. Jobs that meet at a switch get
    separate planes above it, each as many as it has hosts there, level by level, so whatever a job with one host on
    each switch sends has links of its own. If there are not enough planes, as few jobs as possible share one.
    """
    routes = paths_of(network)
    routes.expect([host for pair in groups for host in pair])
    candidates = {pair: routes.between(*pair) for pair in groups}
    edge = frozenset({port.node for host in network.hosts if (port := network.attachment(host))})
    edge -= routes.inner(groups, edge)
    demands: list[_RoutingDemand] = []
    chosen: dict[Pair, Path] = {}
    for pair, group in groups.items():
        first, last = network.attachment(pair[0]), network.attachment(pair[1])
        if not candidates[pair] or first is None or last is None or not {first.node, last.node} <= edge:
            raise NoClosError(f"{pair[0]} or {pair[1]} is not on an edge switch")
        if first.node == last.node:
            chosen[pair] = (last,)
        else:
            demands.append(_RoutingDemand(pair, group, jobs[pair], first.node, last.node, (), (last,)))
    planes = _planes(network, frozenset(network.switches) - edge)
    _spread(network, demands, edge, planes, chosen, dict.fromkeys(jobs.values(), 1))
    for pair, path in chosen.items():
        if path not in candidates[pair]:
            raise NoClosError(f"no plane has a shortest path from {pair[0]} to {pair[1]}")
    return chosen


def _allocate_planes(
    jobs: Mapping[Hashable, Sequence[_RoutingDemand]], planes: int, widths: Mapping[Hashable, int]
) -> dict[Hashable, list[int]]:
    """The numbers of each job's planes: as many as its senders or receivers at one switch need, and then what is free.

    `widths` is the number of planes over which each job's hosts are spread already.
    """
    if len(jobs) == 1:
        return {job: list(range(planes)) for job in jobs}
    needs: dict[Hashable, int] = {}
    places: dict[Hashable, set[str]] = {}
    for job, demands in jobs.items():
        ends = {("from", demand.enters, demand.pair[0]) for demand in demands}
        ends |= {("to", demand.leaves, demand.pair[1]) for demand in demands}
        needs[job] = -(-max(Counter(end[:2] for end in ends).values()) // widths[job])
        places[job] = {end[1] for end in ends}
    owned: dict[Hashable, list[int]] = {job: [] for job in jobs}
    users: Counter[int] = Counter()

    def free(job: Hashable) -> list[int]:
        """The planes without a job that this one meets, the least used first."""
        met = {
            plane
            for other, taken in owned.items()
            if other != job and not places[job].isdisjoint(places[other])
            for plane in taken
        }
        return sorted(set(range(planes)) - met, key=lambda plane: (users[plane], plane))

    for job in sorted(jobs, key=lambda job: -needs[job]):
        taken = free(job)
        others = sorted(set(range(planes)) - set(taken), key=lambda plane: (users[plane], plane))
        owned[job] = taken = [*taken, *others][: needs[job]]
        users.update(taken)
    is_done = False
    while not is_done:
        is_done = True
        for job in jobs:
            for plane in [plane for plane in free(job) if plane not in owned[job]][:1]:
                owned[job].append(plane)
                users[plane] += 1
                is_done = False
    return owned


def _spread(
    network: Network,
    demands: Sequence[_RoutingDemand],
    lowest: frozenset[str],
    planes: Sequence[frozenset[str]],
    chosen: dict[Pair, Path],
    widths: Mapping[Hashable, int],
) -> None:
    """Assign each demand to a plane, then route it within the plane."""
    links = [_links(network, lowest, plane) for plane in planes]
    for demand in demands:
        for end in (demand.enters, demand.leaves):
            if not links or any(end not in plane_links for plane_links in links):
                raise NoClosError(f"{end} does not have one link to each plane above it")
    jobs: dict[Hashable, list[_RoutingDemand]] = {}
    for demand in demands:
        jobs.setdefault(demand.job, []).append(demand)
    allocated = _allocate_planes(jobs, len(planes), widths)
    inside: list[list[_RoutingDemand]] = [[] for _ in planes]
    for job, own in jobs.items():
        edges = [(demand.enters, demand.leaves) for demand in own]
        colours = colour_evenly(edges, [demand.group for demand in own], len(allocated[job]))
        for demand, colour in zip(own, colours, strict=True):
            number = allocated[job][colour]
            up = (*demand.up, links[number][demand.enters])
            back = links[number][demand.leaves]
            top, down = network.peers[back], (network.peers[back], *demand.down)
            enters = network.peers[up[-1]].node
            if enters == top.node:
                chosen[demand.pair] = (*up, *down)
            else:
                inside[number].append(_RoutingDemand(demand.pair, demand.group, job, enters, top.node, up, down))
    wider = {job: widths[job] * len(own) for job, own in allocated.items()}
    for number, plane in enumerate(planes):
        if inside[number]:
            bottom = frozenset(network.peers[port].node for port in links[number].values())
            _spread(network, inside[number], bottom, _planes(network, plane - bottom), chosen, wider)


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
