# SPDX-License-Identifier: Apache-2.0 OR MIT
"""In which order a flow's rules are laid or changed so that no packet is lost or looped; pure.

From the last switch to the first. A switch that already has the flow's packets, because it has a rule of the flow's or
because it is where they enter, changes only when all switches behind it on the new path have confirmed; others have no
packets of it yet, so they need not wait for each other:

    new flow            s13 s5 s1 s9 s17     stages: {s17 s9 s1 s5} {s13}
    moved, s1 to s2     s13 s5 s2 s9 s17     stages: {s9 s2} {s5}          s17 and s13 have the right rule
                                             and s1's goes when what is under way to it has drained

Why that is enough: at each moment the switches of the new path from some one on have their new rules, the rest theirs
of before. A packet goes by rules of before until it is delivered or meets the new part, which leads to the host.
"""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from barewire.topology import Path, Port


def stages(path: Path, standing: Mapping[str, int]) -> list[list[Port]]:
    """Return the rules to lay for a path, in stages; one begins when all of those before it are confirmed.

    `standing` is the output port of every switch that has a rule of the flow's. Those that are right are left.
    """
    found: list[list[Port]] = []
    current: list[Port] = []
    for hop in reversed(path):
        if standing.get(hop.node) == hop.number:
            continue
        if (hop.node in standing or hop == path[0]) and current:
            found.append(current)
            current = []
        current.append(hop)
    return [*found, current] if current else found


def can_loop(path: Path, standing: Mapping[str, int], peers: Mapping[Port, Port]) -> bool:
    """Return whether rules that stand and those of a path could lead a packet round, some laid and some not yet.

    If not, a flow whose old path is broken need not wait for stages: a switch that has its new rule too early sends
    packets on to one without, which come up and are delivered from there; they would be lost otherwise.
    """
    following: dict[str, set[str]] = {}
    for node, number in [*standing.items(), *((hop.node, hop.number) for hop in path)]:
        peer = peers.get(Port(node, number))
        if peer is not None:
            following.setdefault(node, set()).add(peer.node)
    try:
        TopologicalSorter(following).prepare()
    except CycleError:
        return True
    return False
