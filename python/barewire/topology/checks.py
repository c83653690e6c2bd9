# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Constraints on networks for the lab, and for the controller, which knows switches by number."""

import re

from barewire.errors import WrongUse
from barewire.topology.network import Network

# Datapath ids have 48 free bits, but the number is also in a switch's Ethernet address, with 16 bits.
SWITCH_NUMBER_MAX = 0xFFFF
_SWITCH = re.compile(r"s([1-9][0-9]{0,4})")
# Interfaces are named after hosts with a prefix, and the kernel allows 15 characters. s1-3 is port 3 of s1.
_HOST = re.compile(r"(?!s[0-9])[a-z](?:[a-z0-9-]{0,8}[a-z0-9])?")
_SERVER = re.compile(r"server[0-9]*")


def check(network: Network) -> None:
    """Reject a network with names, hosts or parts that a lab cannot have."""
    if not network.switches:
        raise WrongUse("there is no switch")
    for switch in network.switches:
        switch_number(switch)
    for host in network.hosts:
        _check_host(network, host)
    import networkx as nx

    connected = nx.node_connected_component(nx.Graph(network.graph), network.switches[0])
    unconnected = [name for name in (*network.switches, *network.hosts) if name not in connected]
    if unconnected:
        raise WrongUse(f"no links join {', '.join(unconnected)} to {network.switches[0]}")


def switch_number(name: str) -> int:
    """Return a switch's number, its datapath id in controllers."""
    match = _SWITCH.fullmatch(name)
    if match is None or int(match[1]) > SWITCH_NUMBER_MAX:
        raise WrongUse(
            f"'{name}' is not a switch; switches are named s1 to s{SWITCH_NUMBER_MAX}, after their datapath ids"
        )
    return int(match[1])


def is_server(host: str) -> bool:
    """Return whether a host is named server, server1 …; servers get no ranks by default."""
    return _SERVER.fullmatch(host) is not None


def find_loop(network: Network) -> list[str]:
    """Return the nodes of a loop, with the first again at the end; [] if there is none."""
    import networkx as nx

    links: nx.MultiGraph[str] = nx.MultiGraph()
    links.add_edges_from((port.node, peer.node) for port, peer in network.peers.items() if port < peer)
    try:
        cycle = nx.find_cycle(links)
    except nx.NetworkXNoCycle:
        return []
    return [*(edge[0] for edge in cycle), cycle[0][0]]


def _check_host(network: Network, host: str) -> None:
    if _HOST.fullmatch(host) is None:
        raise WrongUse(
            f"'{host}' is not a host name; write up to 10 of a-z, 0-9 and -, beginning with a letter, such as h1"
        )
    ports = network.ports[host]
    if len(ports) > 1:
        raise WrongUse(f"host {host} has {len(ports)} links; a host has one")
    for port in ports:
        peer = network.peers[port]
        if port.number != 1 or peer.node not in network.switches:
            raise WrongUse(f"the link {port} to {peer}: a host's port has number 1 and leads to a switch")
