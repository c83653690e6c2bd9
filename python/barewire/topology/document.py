# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A network as a JSON document: its nodes, and each link once, with the rates of both directions."""

from typing import Any

from barewire.errors import WrongUse
from barewire.topology.links import Links
from barewire.topology.network import Network, Port


def to_json(network: Network) -> dict[str, Any]:
    """Return the document that `from_json` reads."""
    links = [
        {
            "ends": [str(port), str(peer)],
            "rates_bit_s": [network.rates_bit_s.get(end) for end in (port, peer)],
        }
        for port, peer in network.peers.items()
        if port < peer
    ]
    return {"switches": list(network.switches), "hosts": list(network.hosts), "links": links}


def from_json(document: Any) -> Network:
    """Read a document of `to_json`; WrongUse if it is invalid."""
    links = Links()
    rates: dict[Port, int] = {}
    try:
        for link in document["links"]:
            first, second = (_port(text) for text in link["ends"])
            links.add(first, second)
            for port, rate_bit_s in zip((first, second), link["rates_bit_s"], strict=True):
                if rate_bit_s is not None:
                    rates[port] = int(rate_bit_s)
        return Network(tuple(map(str, document["switches"])), tuple(map(str, document["hosts"])), links.peers, rates)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WrongUse(f"this is not a topology as JSON: {error!r}") from error


def _port(text: str) -> Port:
    node, number = text.split(":")
    return Port(node, int(number))
