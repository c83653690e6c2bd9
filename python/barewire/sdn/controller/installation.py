# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order in which a flow's rules are installed or changed so that no packet is lost or loops; pure.

From the last switch to the first. A switch that already gets the flow's packets, because it has a rule of the flow or
is the first switch, changes only after all later switches of the new path have confirmed. Other switches get no packets
of the flow yet, so they need not wait for each other:

    moved, s1 to s2     s13 s5 s2 s9 s17     stages: {s9 s2} {s5}          s17 and s13 have the right rule
                                             and s1's is deleted after packets in flight have drained
    new flow            s13 s5 s1 s9 s17     all at once: where a rule is missing, packets take the default path

A switch from which only one port leads to the host needs no rule of the flow: the default path's does the same, so it
counts as installed and confirmed (docs/decisions/0058-no-rule-where-one-way-leads-on.md).

Proof: at any time a final part of the new path has new rules, the other switches have old ones. A packet follows old
rules until it is delivered or reaches the new part, which leads to the host.
"""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from barewire.topology import Path, Port


def stages(path: Path, installed: Mapping[str, int]) -> list[list[Port]]:
    """Return the rules to install for a path, in stages; a stage begins when the previous one is confirmed.

    `installed` is the output port of every switch with a rule of the flow, or another one that does the same. Correct
    rules are left.
    """
    found: list[list[Port]] = []
    current: list[Port] = []
    for hop in reversed(path):
        if installed.get(hop.node) == hop.number:
            continue
        if (hop.node in installed or hop == path[0]) and current:
            found.append(current)
            current = []
        current.append(hop)
    return [*found, current] if current else found


def can_loop(path: Path, installed: Mapping[str, int], peers: Mapping[Port, Port]) -> bool:
    """Return whether installed rules and a path's rules, partly installed, could loop a packet.

    If not, a flow with a broken path need not wait for stages: a switch with an early new rule forwards packets to one
    without a rule, where they take the default path.
    """
    following: dict[str, set[str]] = {}
    for node, number in [*installed.items(), *((hop.node, hop.number) for hop in path)]:
        peer = peers.get(Port(node, number))
        if peer is not None:
            following.setdefault(node, set()).add(peer.node)
    try:
        TopologicalSorter(following).prepare()
    except CycleError:
        return True
    return False
