# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Draws a network in layers as SVG: hosts below, switches by distance from them, servers above; pure."""

from collections.abc import Mapping, Sequence
from html import escape

from barewire.topology.checks import is_server
from barewire.topology.network import Network, natural
from barewire.topology.rate import format_rate

_COLUMN, _ROW, _MARGIN, _CAPTION = 64, 110, 40, 30
_WIDTH, _HEIGHT = 52, 26
_STYLE = (
    "text{font:12px sans-serif;text-anchor:middle;dominant-baseline:central}"
    ".port{font-size:9px;fill:#555}.switch{fill:#cfe2f3;stroke:#3d6a99}.host{fill:#fff;stroke:#777}"
    ".server{fill:#fce8b2;stroke:#b58900}line{stroke:#999}"
)


def layers(network: Network) -> list[list[str]]:
    """Return the nodes from the bottom to the top: hosts, switches by distance from the nearest host, servers."""
    import networkx as nx

    servers = [host for host in network.hosts if is_server(host)]
    hosts = [host for host in network.hosts if host not in servers]
    if not hosts:
        hosts, servers = servers or list(network.switches[:1]), []
    rows = [[name for name in row if name not in servers] for row in nx.bfs_layers(nx.Graph(network.graph), hosts)]
    return [sorted(row, key=natural) for row in (*rows, servers) if row]


def counted(network: Network) -> str:
    """Return the numbers of all kinds of nodes and of links, as text."""
    servers = sum(is_server(host) for host in network.hosts)
    parts = [(len(network.switches), "switch", "es"), (len(network.hosts) - servers, "host", "s")]
    parts += [(servers, "server", "s"), (len(network.peers) // 2, "link", "s")]
    return ", ".join(f"{count} {noun}{plural * (count != 1)}" for count, noun, plural in parts if count)


def svg(network: Network, title: str) -> str:
    """Return the picture. Lines are links, small numbers the switches' ports; tooltips show the rates."""
    rows = layers(network)
    positions = _positions(rows)
    width = _COLUMN * max(len(row) for row in rows) + 2 * _MARGIN
    height = _ROW * (len(rows) - 1) + 2 * _MARGIN + _HEIGHT + _CAPTION
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text x="{width / 2:g}" y="{_CAPTION / 2:g}">{escape(_caption(network, title))}</text>',
        *_links(network, positions),
    ]
    for name, (x, y) in positions.items():
        kind = "switch" if name in network.switches else "server" if is_server(name) else "host"
        parts.append(
            f'<rect class="{kind}" x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'rx="{4 if kind == "switch" else 12}"/><text x="{x:g}" y="{y:g}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _positions(rows: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Distribute each layer over the whole width."""
    widest = max(len(row) for row in rows)
    positions = {}
    for level, row in enumerate(reversed(rows)):
        y = _MARGIN + _CAPTION + _HEIGHT / 2 + level * _ROW
        for index, name in enumerate(row):
            positions[name] = (_MARGIN + _COLUMN * widest * (index + 0.5) / len(row), y)
    return positions


def _links(network: Network, positions: Mapping[str, tuple[float, float]]) -> list[str]:
    parts = []
    for port, peer in sorted(network.peers.items()):
        if port > peer:
            continue
        (x1, y1), (x2, y2) = positions[port.node], positions[peer.node]
        rates = [format_rate(network.rates_bit_s.get(end)) for end in (port, peer)]
        label = f"{port} – {peer}: {rates[0] if rates[0] == rates[1] else ' out, '.join(rates) + ' back'}"
        parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"><title>{escape(label)}</title></line>')
        for end, x, y, far_x, far_y in ((port, x1, y1, x2, y2), (peer, x2, y2, x1, y1)):
            if end.node in network.switches:
                share = 0.24
                parts.append(
                    f'<text class="port" x="{x + share * (far_x - x):g}" y="{y + share * (far_y - y):g}">'
                    f"{end.number}</text>"
                )
    return parts


def _caption(network: Network, title: str) -> str:
    rates = {network.rates_bit_s.get(port) for port in network.peers}
    rate = format_rate(rates.pop()) if len(rates) == 1 else "links of several rates"
    return f"{title}: {counted(network)}, {rate}"
