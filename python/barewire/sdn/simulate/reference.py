# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reference networks: the same hosts with the same links in a non-blocking network."""

from collections.abc import Sequence
from dataclasses import replace

from barewire.errors import WrongUse
from barewire.topology import Network, Port
from barewire.topology.links import Links


def non_blocking(network: Network, hosts: Sequence[str]) -> Network:
    """Return a star of these hosts with their links' rates. WrongUse for hosts that the network does not have.

    A network of which no rate is known has a star of which none is known: a lab gives it the rate of its links.
    """
    links = Links()
    rates: dict[Port, int] = {}
    for number, host in enumerate(hosts, start=1):
        attachment = network.attachment(host)
        if attachment is None or host not in network.host_numbers:
            raise WrongUse(f"the topology has no host '{host}' with a link")
        host_port, switch_port = Port(host, 1), Port("s1", number)
        links.add(host_port, switch_port)
        if network.rates_bit_s:
            rates[host_port] = round(network.rate_byte_s(network.ports[host][0]) * 8)
            rates[switch_port] = round(network.rate_byte_s(attachment) * 8)
    return Network(("s1",), tuple(hosts), links.peers, rates)


def widened(network: Network) -> Network:
    """Return the network with links between switches that can carry the traffic of all hosts at once.

    All its rates are known then, and a lab changes none: the network needs its own before (`with_rate`).
    """
    together = round(sum(network.rate_byte_s(network.ports[host][0]) for host in network.hosts) * 8)
    switches = set(network.switches)
    between = {port for port, peer in network.peers.items() if port.node in switches and peer.node in switches}
    rates = {port: round(network.rate_byte_s(port) * 8) for port in network.peers}
    return replace(network, rates_bit_s=rates | dict.fromkeys(between, together))
