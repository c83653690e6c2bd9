# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The cables of the live page: each has two numbered directions, and stays for a while after it failed.

No clock, no I/O.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from barewire.topology import Network, Port
from barewire.topology.network import natural

# More cables cannot be told apart on a page; a fat-tree of 14-port switches has 2058.
CABLES_MAX = 2000
# Numbers of directions. Hosts that move use up numbers; after this many all are assigned anew.
NUMBERS_MAX = 4 * CABLES_MAX
# A failed cable is shown for this time.
DOWN_S = 600.0


@dataclass
class Cable:
    """Both ends, the number of the direction from `a` to `b`, and the time of the failure; None: it works.

    The direction from `b` to `a` has the next number. A host is always `a`.
    """

    a: Port
    b: Port
    number: int
    down_s: float | None = None


class Cables:
    """The numbered cables; `generation` increases when all numbers are assigned anew."""

    def __init__(self) -> None:
        """Begin without cables."""
        self.generation = 0
        self.left_out = 0
        self.next_number = 0
        self._by_ends: dict[tuple[Port, Port], Cable] = {}
        self._numbers: dict[Port, int] = {}

    def __iter__(self) -> Iterator[Cable]:
        """All cables, by number."""
        return iter(self._by_ends.values())

    def number(self, port: Port) -> int | None:
        """Return the number of the direction in which a port sends; None if its cable is not shown."""
        return self._numbers.get(port)

    def update(self, network: Network, now: float) -> None:
        """Follow the network: add its new cables, and mark those that it no longer has."""
        ends = list(_ends(network))
        self.left_out = max(len(ends) - CABLES_MAX, 0)
        working = set(ends[:CABLES_MAX])
        homes = {port.node for port, _ in working if port.node in network.host_numbers}
        for pair, cable in list(self._by_ends.items()):
            if pair in working:
                cable.down_s = None
                continue
            cable.down_s = now if cable.down_s is None else cable.down_s
            if now >= cable.down_s + DOWN_S or cable.a.node in homes:
                del self._by_ends[pair]
        if len(self._by_ends) + len(working - self._by_ends.keys()) > CABLES_MAX:
            self._by_ends = {pair: cable for pair, cable in self._by_ends.items() if cable.down_s is None}
        if self.next_number + 2 * len(working - self._by_ends.keys()) > NUMBERS_MAX:
            self._by_ends.clear()
            self.generation, self.next_number = self.generation + 1, 0
        for pair in ends[:CABLES_MAX]:
            if pair not in self._by_ends:
                self._by_ends[pair] = Cable(*pair, self.next_number)
                self.next_number += 2
        self._numbers = {}
        for cable in self:
            if cable.down_s is None:
                self._numbers |= {cable.a: cable.number, cable.b: cable.number + 1}

    def loads_bit_s(self, sent: Mapping[Port, float], received: Mapping[Port, float]) -> list[int]:
        """Return each direction's load by its number, from the rates in bytes/s that switch ports sent and received."""
        loads = [0] * self.next_number
        for cable in self:
            if cable.down_s is None:
                # A host's port counts nothing; what it sends is what the switch's port receives.
                loads[cable.number] = round(8 * sent.get(cable.a, received.get(cable.b, 0.0)))
                loads[cable.number + 1] = round(8 * sent.get(cable.b, 0.0))
        return loads


def _ends(network: Network) -> Iterable[tuple[Port, Port]]:
    """Each cable once, the host or the lower switch first; those between switches first, as too many are cut off."""
    hosts = network.host_numbers
    once = [
        (port, peer)
        for port, peer in network.peers.items()
        if port.node in hosts or (peer.node not in hosts and _of(port) < _of(peer))
    ]
    return sorted(once, key=lambda pair: (pair[0].node in hosts, _of(pair[0]), _of(pair[1])))


def _of(port: Port) -> tuple[tuple[str, int], int]:
    return natural(port.node), port.number
