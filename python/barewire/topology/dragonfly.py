# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The dragonfly (Kim, Dally, Scott, Abts 2008): groups of switches; each joins all of its group, and any two groups.

    group 0         group 1         …       A switches in a group, each with P hosts and H links to other groups
    s1 ─── s2       s3 ─── s4               A·H + 1 groups: one link between any two
    ║ ╲    ║ ╲______║      ║
    h1 …   h3 …     h5 …   h7 …             hosts in order along the switches

A switch's ports: 1 to P to hosts, then A - 1 to its group, then H to other groups.
"""

from itertools import combinations

from barewire.errors import WrongUse
from barewire.topology.links import Links
from barewire.topology.network import Network, Port


def dragonfly(switches: int, global_links: int, hosts: int) -> Network:
    """Return the dragonfly of groups of so many switches, each with so many links to other groups and so many hosts.

    Global links are numbered consecutively: link n of group g, at its switch n div H, leads to group (g + n + 1) mod
    (A·H + 1). A balanced one has A = 2H and P = H.
    """
    if min(switches, global_links, hosts) < 1:
        raise WrongUse(
            f"a dragonfly of {switches} switches a group, {global_links} global links and {hosts} hosts a switch is "
            "impossible; each is at least 1"
        )
    groups = switches * global_links + 1
    names = [[f"s{1 + group * switches + number}" for number in range(switches)] for group in range(groups)]
    links = Links()
    every = [name for group in names for name in group]
    all_hosts = [f"h{1 + number}" for number in range(len(every) * hosts)]
    for number, host in enumerate(all_hosts):
        links.add(Port(host, 1), Port(every[number // hosts], 1 + number % hosts))
    for members in names:
        for first, second in combinations(range(switches), 2):
            # Port numbers skip the switch itself.
            links.add(Port(members[first], hosts + second), Port(members[second], hosts + 1 + first))
    for group in range(groups):
        for number in range(groups - 1):
            other, back = (group + number + 1) % groups, groups - 2 - number
            if group < other:
                links.add(
                    _global_port(names[group], number, global_links, hosts),
                    _global_port(names[other], back, global_links, hosts),
                )
    return Network(tuple(every), tuple(all_hosts), links.peers)


def _global_port(group: list[str], number: int, global_links: int, hosts: int) -> Port:
    """The port of a group's global link."""
    return Port(group[number // global_links], hosts + len(group) + number % global_links)
