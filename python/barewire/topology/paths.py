# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All shortest paths of one network, cached: like `shortest_paths`, fast enough for thousands of hosts."""

from collections import deque

from barewire.topology.network import Network, Path, Port, natural


class Paths:
    """Paths between switches with hosts are computed once; hosts of the same switches differ in the last port only."""

    def __init__(self, network: Network) -> None:
        """Create an empty cache for this network, filled on demand."""
        self.network = network
        self._hops: dict[str, dict[str, int]] = {}
        self._between: dict[tuple[str, str], tuple[Path, ...]] = {}
        self._switches = frozenset(network.switches)
        self._links = {
            switch: sorted(
                (port for port in network.ports[switch] if network.peers[port].node in self._switches),
                key=lambda port: port.number,
            )
            for switch in network.switches
        }

    def between(self, source: str, destination: str) -> tuple[Path, ...]:
        """Return all shortest paths between two hosts, sorted by their nodes' and ports' numbers; () if none."""
        if source == destination:
            return ()
        starts = sorted({port.node for port in self._attachments(source)}, key=natural)
        candidates = [
            (hops, start, end)
            for start in starts
            for end in self._attachments(destination)
            if (hops := self._distance(start, end.node)) is not None
        ]
        least = min((hops for hops, _, _ in candidates), default=0)
        nearest = [(start, end) for hops, start, end in candidates if hops == least]
        paths = [(*path, end) for start, end in nearest for path in self._across(start, end.node)]
        return tuple(paths if len(nearest) == 1 else sorted(paths, key=_order))

    def _attachments(self, host: str) -> list[Port]:
        ports = self.network.ports.get(host, ()) if host not in self._switches else ()
        return [self.network.peers[port] for port in ports if self.network.peers[port].node in self._switches]

    def _distance(self, source: str, destination: str) -> int | None:
        if destination not in self._hops:
            self._hops[destination] = self._hops_to(destination)
        return self._hops[destination].get(source)

    def _hops_to(self, destination: str) -> dict[str, int]:
        hops = {destination: 0}
        waiting = deque([destination])
        while waiting:
            node = waiting.popleft()
            for port in self._links[node]:
                peer = self.network.peers[port].node
                if peer not in hops:
                    hops[peer] = hops[node] + 1
                    waiting.append(peer)
        return hops

    def _across(self, source: str, destination: str) -> tuple[Path, ...]:
        """Return all shortest paths from switch to switch, sorted."""
        if (source, destination) not in self._between:
            hops = self._hops[destination]
            partial_paths: list[tuple[Path, str]] = [((), source)]
            for remaining in range(hops[source], 0, -1):
                partial_paths = [
                    ((*path, port), self.network.peers[port].node)
                    for path, node in partial_paths
                    for port in self._links[node]
                    if hops.get(self.network.peers[port].node) == remaining - 1
                ]
            paths = [path for path, _ in partial_paths]
            self._between[source, destination] = tuple(sorted(paths, key=_order))
        return self._between[source, destination]


def _order(path: Path) -> list[tuple[tuple[str, int], int]]:
    return [(natural(port.node), port.number) for port in path]
