# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Networks with failures: without some switches and links, and without the hosts that this cuts off."""

import random
import re
from collections.abc import Collection, Sequence

from barewire.errors import WrongUse
from barewire.topology.network import Network, Port

_LINK = re.compile(r"([^:%]+):([0-9]{1,9})")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")


def failed(network: Network, texts: Sequence[str], seed: int = 1) -> Network:
    """Return the network without what the texts name.

    `s5` is a switch, `s13:3` the link at this port, and `2%` this share of the links between switches, drawn from
    `seed`. WrongUse for what the network does not have, and if its hosts are no longer all connected.
    """
    switches: set[str] = set()
    ports: set[Port] = set()
    for text in texts:
        if share := _SHARE.fullmatch(text):
            ports |= _drawn(network, float(share[1]) / 100, seed)
        elif link := _LINK.fullmatch(text):
            port = Port(link[1], int(link[2]))
            if port not in network.peers:
                raise WrongUse(f"the network has no link at port {port}")
            ports.add(port)
        elif text in network.switches:
            switches.add(text)
        else:
            raise WrongUse(
                f"'{text}' cannot fail: it is no switch of this network; write s5 for a switch, s13:3 for the link at "
                "a port, 2% for a share of the links between switches"
            )
    return without(network, switches, ports)


def without(network: Network, switches: Collection[str], ports: Collection[Port]) -> Network:
    """Return the network without these switches, the links at these ports, and the hosts that have no link left."""
    lost = {*ports, *(network.peers[port] for port in ports)}
    gone = set(switches)
    peers = {
        port: peer
        for port, peer in network.peers.items()
        if port not in lost and port.node not in gone and peer.node not in gone
    }
    linked = {port.node for port in peers}
    hosts = tuple(host for host in network.hosts if host in linked)
    rates = {port: rate for port, rate in network.rates_bit_s.items() if port in peers}
    left = Network(tuple(name for name in network.switches if name not in gone), hosts, peers, rates)
    _check_connected(left)
    return left


def _drawn(network: Network, share: float, seed: int) -> set[Port]:
    if not 0 <= share < 1:
        raise WrongUse(f"{share:.0%} of the links cannot fail: a share is from 0% up to 100%")
    switches = frozenset(network.switches)
    links = sorted(port for port, peer in network.peers.items() if port < peer and {port.node, peer.node} <= switches)
    return set(random.Random(f"failures {seed}").sample(links, round(share * len(links))))


def _check_connected(network: Network) -> None:
    """Reject a network in which two hosts have no path."""
    if not network.hosts:
        raise WrongUse("after these failures no host has a link")
    reached, waiting = {network.hosts[0]}, [network.hosts[0]]
    while waiting:
        for port in network.ports[waiting.pop()]:
            peer = network.peers[port].node
            if peer not in reached:
                reached.add(peer)
                waiting.append(peer)
    apart = [host for host in network.hosts if host not in reached]
    if apart:
        raise WrongUse(
            f"after these failures {len(apart)} hosts ({', '.join(apart[:3])} …) have no path to {network.hosts[0]}; "
            "let less fail"
        )
