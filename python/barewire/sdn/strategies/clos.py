# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths through a folded Clos network (a fat-tree) by edge colouring: any permutation of hosts at line rate.

Without its edge switches a fat-tree falls apart into planes, and each edge switch has one link to each:

    plane 0: s5 s7 s9 s11  s1 s2        plane 1: s6 s8 s10 s12  s3 s4

Which plane a flow takes is the colour of an edge from its source's to its destination's switch: a colour that is even
at each switch is a load that is even on its links. A plane is a smaller Clos network: its lowest switches are those
where flows enter and leave, and without them it falls apart again. Source: Beneš 1965; Hwang 1983.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barewire.sdn.strategies.colouring import colour_evenly
from barewire.sdn.strategies.memo import paths_of
from barewire.topology import Network, Path, Port
from barewire.topology.network import natural

Pair = tuple[str, str]


class NoClosError(ValueError):
    """The network, or what is left of it, does not have the form that colouring needs."""


@dataclass(frozen=True)
class _Need:
    """A flow on its way between two switches of one level: the ports before them and after them, as found so far."""

    pair: Pair
    weight: float
    enters: str
    leaves: str
    up: Path = ()
    down: Path = ()


def clos_paths(network: Network, demands: Mapping[Pair, float]) -> Mapping[Pair, Path]:
    """Return a path for each pair of hosts, each switch's load even over its links. NoClosError if it cannot."""
    candidates = {pair: paths_of(network).between(*pair) for pair in demands}
    inner = {port.node for paths in candidates.values() for path in paths for port in path[1:-1]}
    edge = {port.node for host in network.hosts if (port := network.attachment(host))} - inner
    needs: list[_Need] = []
    chosen: dict[Pair, Path] = {}
    for pair, weight in demands.items():
        first, last = network.attachment(pair[0]), network.attachment(pair[1])
        if not candidates[pair] or first is None or last is None or not {first.node, last.node} <= edge:
            raise NoClosError(f"{pair[0]} or {pair[1]} does not hang on an edge switch")
        if first.node == last.node:
            chosen[pair] = (last,)
        else:
            needs.append(_Need(pair, weight, first.node, last.node, (), (last,)))
    _level(network, needs, frozenset(network.switches), frozenset(edge), chosen)
    for pair, path in chosen.items():
        if path not in candidates[pair]:
            raise NoClosError(f"no plane has a shortest path from {pair[0]} to {pair[1]}")
    return chosen


def _level(
    network: Network, needs: Sequence[_Need], switches: frozenset[str], lowest: frozenset[str], chosen: dict[Pair, Path]
) -> None:
    """Give each need a plane, then what remains of it to the plane."""
    if not needs:
        return
    planes = _planes(network, switches - lowest)
    if not planes:
        raise NoClosError("switches of one level are joined by nothing above them")
    links = [_links(network, lowest, plane) for plane in planes]
    for need in needs:
        for end in (need.enters, need.leaves):
            if any(end not in one for one in links):
                raise NoClosError(f"{end} does not have one link to each plane above it")
    weights = [need.weight for need in needs]
    colours = colour_evenly([(need.enters, need.leaves) for need in needs], weights, len(planes))
    for number, plane in enumerate(planes):
        inside: list[_Need] = []
        for need, colour in zip(needs, colours, strict=True):
            if colour != number:
                continue
            up = (*need.up, links[number][need.enters])
            back = links[number][need.leaves]
            top, down = network.peers[back], (network.peers[back], *need.down)
            enters = network.peers[up[-1]].node
            if enters == top.node:
                chosen[need.pair] = (*up, *down)
            else:
                inside.append(_Need(need.pair, need.weight, enters, top.node, up, down))
        bottom = frozenset(network.peers[port].node for port in links[number].values())
        _level(network, inside, plane, bottom, chosen)


def _planes(network: Network, switches: frozenset[str]) -> list[frozenset[str]]:
    """The connected parts, in the order of their first switches."""
    parts: list[frozenset[str]] = []
    left = set(switches)
    for start in sorted(switches, key=natural):
        if start not in left:
            continue
        part, waiting = {start}, [start]
        while waiting:
            for port in network.ports[waiting.pop()]:
                peer = network.peers[port].node
                if peer in switches and peer not in part:
                    part.add(peer)
                    waiting.append(peer)
        left -= part
        parts.append(frozenset(part))
    return parts


def _links(network: Network, lowest: Iterable[str], plane: frozenset[str]) -> dict[str, Port]:
    """Of each switch that has exactly one link into the plane, its port."""
    found: dict[str, Port] = {}
    for switch in lowest:
        into = [port for port in network.ports[switch] if network.peers[port].node in plane]
        if len(into) == 1:
            found[switch] = into[0]
    return found
