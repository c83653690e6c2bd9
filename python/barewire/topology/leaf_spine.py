# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The leaf-spine network, a folded Clos network of two levels: every leaf has one link to every spine.

s1      s2        spines: port p to leaf p
│╲ ╳  ╱ │
s3  s4  s5        leaves: ports 1 to H to hosts, the others up
║   ║   ║
h1… h3… h5…       hosts, in order along the leaves
"""

from barewire.errors import WrongUse
from barewire.topology.links import Links
from barewire.topology.network import Network, Port


def leaf_spine(leaves: int, spines: int, hosts: int) -> Network:
    """Return a network of so many leaves and spines, with so many hosts at each leaf.

    Two hosts at different leaves have one path over each spine. With at least as many spines as hosts at a leaf it does
    not block.
    """
    if min(leaves, spines, hosts) < 1 or leaves * hosts < 2:
        raise WrongUse(
            f"a leaf-spine network of {leaves} leaves, {spines} spines and {hosts} hosts a leaf is impossible; "
            "each is at least 1, with at least 2 hosts"
        )
    spine = [f"s{1 + number}" for number in range(spines)]
    leaf = [f"s{1 + spines + number}" for number in range(leaves)]
    names = [f"h{1 + number}" for number in range(leaves * hosts)]
    links = Links()
    for number, host in enumerate(names):
        links.add(Port(host, 1), Port(leaf[number // hosts], 1 + number % hosts))
    for below, lower in enumerate(leaf):
        for above, upper in enumerate(spine):
            links.add(Port(lower, hosts + 1 + above), Port(upper, 1 + below))
    return Network((*spine, *leaf), tuple(names), links.peers)
