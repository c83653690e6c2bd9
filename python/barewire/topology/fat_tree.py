# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The fat-tree of switches with k ports each (Al-Fares, Loukissas, Vahdat 2008), numbered as published for k = 4.

server1 ── s1    s2    s3    s4        core: (k/2)² switches, port p to pod p; the servers behind these
           │ ╲   …                     a pod's first aggregation switch reaches the first k/2 cores, and so on
s5  s6   s7  s8   s9 s10  s11 s12      aggregation: k/2 in each pod, ports 1 to k/2 down, the others up
 │ ╳ │    …
s13 s14  s15 s16  s17 s18  s19 s20     edge: k/2 in each pod, ports 1 to k/2 to hosts, the others up
║    ║
h1 h2  h3 h4 …                         k³/4 hosts, in order along the edge switches
"""

from barewire.errors import WrongUse
from barewire.topology.links import Links
from barewire.topology.network import Network, Port


def fat_tree(k: int, servers: int = 1) -> Network:
    """Return the fat-tree of k-port switches, k even and at least 2.

    A host has one port, so a server is attached to one core switch, not to all: server1 to s1, server2 to s2, and so on
    in a cycle. All paths to it therefore end at that core, whose link to the server is the limit.
    """
    if k < 2 or k % 2:
        raise WrongUse(f"a fat-tree of {k}-port switches is impossible; k must be an even number from 2")
    if servers < 0:
        raise WrongUse(f"{servers} servers are impossible")
    half = k // 2
    cores = [f"s{1 + core}" for core in range(half * half)]
    aggregation = [f"s{1 + len(cores) + number}" for number in range(k * half)]
    edge = [f"s{1 + len(cores) + len(aggregation) + number}" for number in range(k * half)]
    hosts = [f"h{1 + number}" for number in range(k * half * half)]
    links = Links()
    for number, host in enumerate(hosts):
        links.add(Port(host, 1), Port(edge[number // half], 1 + number % half))
    for pod in range(k):
        for down in range(half):
            for up in range(half):
                edge_port = Port(edge[pod * half + down], half + 1 + up)
                links.add(edge_port, Port(aggregation[pod * half + up], 1 + down))
        for down in range(half):
            for up in range(half):
                aggregation_port = Port(aggregation[pod * half + down], half + 1 + up)
                links.add(aggregation_port, Port(cores[down * half + up], 1 + pod))
    names = [f"server{1 + number}" for number in range(servers)]
    for number, server in enumerate(names):
        links.add(Port(server, 1), Port(cores[number % len(cores)], k + 1 + number // len(cores)))
    return Network((*cores, *aggregation, *edge), (*hosts, *names), links.peers)
