# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints a network as a table, or draws it into a file."""

from html import escape
from pathlib import Path

from rich.table import Table

from barewire.errors import WrongUse
from barewire.lab import Topology, format_rate
from barewire.topology import Network, Port, star
from barewire.topology.picture import layers, svg


def drawn_network(topology: Topology) -> Network:
    """Return the network to draw; a kernel bridge becomes one switch, and a pair its link only."""
    if topology.network is not None:
        return topology.network
    if topology.name == "pair":
        ends = Port("h1", 1), Port("h2", 1)
        return Network((), topology.hosts, {ends[0]: ends[1], ends[1]: ends[0]})
    return star(len(topology.hosts))


def table(network: Network) -> Table:
    """Return a row for each switch, the highest layer first, with the peer and rate of each port."""
    rates = {network.rates_bit_s.get(port) for port in network.peers}
    drawn = Table(
        "layer", "switch", "ports: peer", title=f"each link {format_rate(rates.pop())}" if len(rates) == 1 else None
    )
    rows = [[name for name in row if name in network.switches] for row in layers(network)]
    for level, row in reversed(list(enumerate(row for row in rows if row))):
        for name in row:
            drawn.add_row(
                str(level + 1), name, "  ".join(_port(network, port, bool(rates)) for port in network.ports[name])
            )
        drawn.add_section()
    return drawn


def save_picture(network: Network, title: str, file: Path, *, page: bool) -> None:
    """Write the picture as SVG, or as a self-contained HTML page."""
    picture = svg(network, title)
    if page:
        picture = (
            f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n{picture}</html>\n'
        )
    try:
        # UTF-8 whatever the locale is; the title may have a file's name that is no text.
        file.write_bytes(picture.encode(errors="backslashreplace"))
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {error.strerror}") from error


def _port(network: Network, port: Port, with_rate: bool) -> str:
    peer = network.peers[port]
    described = f"{port.number}: {peer if peer.node in network.switches else peer.node}"
    return f"{described} ({format_rate(network.rates_bit_s.get(port))})" if with_rate else described
