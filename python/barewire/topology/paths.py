# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All shortest paths of one network, by arrays: like `shortest_paths`, for tens of thousands of hosts.

A fat-tree of 48-port switches has 576 paths between two pods, and 27,648 hosts that send: 16 million paths, of which
strategies look at few. So a `PathSet` knows its length and members without listing them, and `rows` are port numbers.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from barewire.topology.network import Network, Path, Port, natural

Rows = NDArray[np.int32]

# Distance of switches that no path joins.
_UNREACHABLE = np.iinfo(np.int16).max
# Path sets kept as arrays; in a fat-tree of 48-port switches one takes 9 kB.
_REMEMBERED = 4096
# Pairs of hosts whose paths are kept, at the same size.
_REMEMBERED_PAIRS = 1024
# Up to so many paths a set keeps them as such.
_FEW = 16
# Destinations whose distances are computed together: a batch of a large network takes some 50 MB.
_BATCH = 512


class PortValues(Mapping[Port, float]):
    """A number for each port: a mapping for strategies, and an array in the order of `Paths.ports`."""

    def __init__(self, paths: "Paths", array: NDArray[Any]) -> None:
        """Wrap `array`, of shape (ports,), which stays the caller's to change."""
        self.paths, self.array = paths, array

    def __getitem__(self, port: Port) -> float:
        """Return a port's number."""
        value: float = self.array[self.paths.numbers[port]].item()
        return value

    def __iter__(self) -> Iterator[Port]:
        """Iterate over all ports."""
        return iter(self.paths.ports)

    def __len__(self) -> int:
        """Return the number of ports."""
        return len(self.paths.ports)


class PathSet(Sequence[Path]):
    """All shortest paths between two hosts, sorted by their ports' numbers, hop by hop."""

    def __init__(self, paths: "Paths", first: int, last: int, end: Port) -> None:
        """`first` and `last` are the numbers of the hosts' switches, `end` the port to the destination host."""
        self.paths = paths
        self._first, self._last, self._end = first, last, end
        self._rows: Rows | None = None
        self._few: tuple[Path, ...] | None = None

    def rows(self) -> Rows:
        """Return the numbers (in `Paths.ports`) of each path's ports, of shape (paths, hops)."""
        if self._rows is None:
            self._rows = self._joined()
        return self._rows

    def _joined(self) -> Rows:
        across = self.paths.across(self._first, self._last)
        end = np.full((len(across), 1), self.paths.numbers[self._end], dtype=np.int32)
        return np.hstack((across, end))

    def walk(self, choose: Callable[[str, int], int]) -> Path:
        """Go from switch to switch; where paths diverge, take next hop number `choose(switch, hops)`."""
        path: list[Port] = []
        here = self._first
        while here != self._last:
            hops = self.paths.next_hops(here, self._last)
            taken = 0 if len(hops) == 1 else choose(self.paths.network.switches[here], len(hops))
            port, here = hops[taken]
            path.append(port)
        return (*path, self._end)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the place of a path; ValueError if it is not among them."""
        if value not in self:
            raise ValueError("not one of the shortest paths")
        wanted = [self.paths.numbers[port] for port in value]
        [found, *_] = np.flatnonzero((self.rows() == wanted).all(axis=1))
        return int(found)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Path, ...]: ...
    def __getitem__(self, index: int | slice) -> Path | tuple[Path, ...]:
        """Return a path, or several."""
        if isinstance(index, slice):
            return tuple(map(self.paths.path_of, self.rows()[index]))
        if self._few is not None:
            return self._few[index]
        return self.walk(lambda _switch, _hops: 0) if index == 0 else self.paths.path_of(self.rows()[index])

    def __bool__(self) -> bool:
        """There is at least one."""
        return True

    def __len__(self) -> int:
        """Return the number of paths."""
        return len(self.paths.across(self._first, self._last))

    def __iter__(self) -> Iterator[Path]:
        """List the paths; few are kept."""
        if self._few is None:
            every = map(self.paths.path_of, self.rows())
            if len(self) > _FEW:
                return every
            self._few = tuple(every)
        return iter(self._few)

    def __contains__(self, value: object) -> bool:
        """Return whether this is one of the paths, by following it."""
        if not isinstance(value, tuple) or not value or value[-1] != self._end:
            return False
        here = self._first
        for port in value[:-1]:
            following = dict(self.paths.next_hops(here, self._last)) if here != self._last else {}
            if port not in following:
                return False
            here = following[port]
        return here == self._last

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of the same paths."""
        return isinstance(other, PathSet | tuple | list) and len(self) == len(other) and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return all paths, for tests that fail."""
        return f"PathSet{tuple(self)!r}"


class Paths:
    """Distances are computed once for each switch with hosts, path sets on demand."""

    def __init__(self, network: Network, like: "Paths | None" = None) -> None:
        """Number the ports of this network. The distances of `like` are used, too, if it has the same switches.

        Its links between switches must then be the same.
        """
        self.network = network
        self._switches = {switch: number for number, switch in enumerate(network.switches)}
        self._hops_to: dict[int, NDArray[np.int16]] = {}
        self._hops_lists: dict[int, list[int]] = {}
        self._next_hops: dict[tuple[int, int], tuple[tuple[Port, int], ...]] = {}
        self._across: OrderedDict[tuple[int, int], Rows] = OrderedDict()
        self._between: OrderedDict[tuple[str, str], Sequence[Path]] = OrderedDict()
        if like is not None and like.network.switches == network.switches:
            self._hops_to, self._hops_lists, self._next_hops = like._hops_to, like._hops_lists, like._next_hops
            self._links_of = like._links_of

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """All ports, hosts' too, sorted; a port's number is its place here."""
        return tuple(port for node in sorted(self.network.ports) for port in self.network.ports[node])

    @cached_property
    def numbers(self) -> Mapping[Port, int]:
        """The place of each port in `ports`."""
        return {port: number for number, port in enumerate(self.ports)}

    @cached_property
    def rate_byte_s(self) -> NDArray[np.float64]:
        """Each port's rate in bytes a second, of shape (ports,)."""
        usual, known = self.network.usual_rate_bit_s, self.network.rates_bit_s
        return np.array([known.get(port, usual) for port in self.ports], dtype=np.float64) / 8

    def path_of(self, row: Sequence[int] | Rows) -> Path:
        """Return the path with these port numbers."""
        return tuple(self.ports[number] for number in row)

    def between(self, source: str, destination: str) -> Sequence[Path]:
        """Return all shortest paths between two hosts, sorted by their nodes' and ports' numbers; () if none."""
        known = self._between.get((source, destination))
        if known is None:
            known = self._between[source, destination] = self._found_between(source, destination)
            if len(self._between) > _REMEMBERED_PAIRS:
                self._between.popitem(last=False)
        return known

    def _found_between(self, source: str, destination: str) -> Sequence[Path]:
        if source == destination:
            return ()
        starts = sorted({port.node for port in self._attachments(source)}, key=natural)
        candidates = [
            (hops, start, end)
            for start in starts
            for end in self._attachments(destination)
            if (hops := self._distance(start, end.node)) < _UNREACHABLE
        ]
        least = min((hops for hops, _, _ in candidates), default=0)
        sets = [
            PathSet(self, self._switches[start], self._switches[end.node], end)
            for hops, start, end in candidates
            if hops == least
        ]
        if len(sets) == 1:
            return sets[0]
        return tuple(sorted((path for each in sets for path in each), key=_order))

    def expect(self, destinations: Sequence[str]) -> None:
        """Compute the distances to these hosts' switches together, which is faster than one by one."""
        self.expect_switches(port.node for host in destinations for port in self._attachments(host))

    def expect_switches(self, destinations: Iterable[str]) -> None:
        """Compute the distances to these switches together."""
        wanted = {self._switches[switch] for switch in destinations}
        missing = sorted(wanted - self._hops_to.keys())
        for begin in range(0, len(missing), _BATCH):
            self._measure(missing[begin : begin + _BATCH])

    def inner(self, pairs: Iterable[tuple[str, str]], switches: Iterable[str]) -> set[str]:
        """Return those of the switches that lie inside a shortest path between two of the pairs' hosts."""
        ends = {
            (self._switches[first.node], self._switches[last.node])
            for source, destination in pairs
            for first in self._attachments(source)
            for last in self._attachments(destination)
        }
        if not ends:
            return set()
        first, last = (np.array(side) for side in zip(*sorted(ends), strict=True))
        # Distances are symmetrical.
        to = {end: self._hops(int(end)).astype(np.int32) for end in np.unique(np.concatenate((first, last)))}
        whole = np.array([to[end][start] for start, end in zip(first, last, strict=True)])
        found = set()
        for switch in switches:
            number = self._switches[switch]
            here = self._hops(number).astype(np.int32)
            through = (here[first] + here[last] == whole) & (first != number) & (last != number)
            if through.any():
                found.add(switch)
        return found

    def next_hops(self, here: int, last: int) -> tuple[tuple[Port, int], ...]:
        """Return the ports that lead from a switch towards another, with the switches behind, by port numbers."""
        known = self._next_hops.get((here, last))
        if known is None:
            hops = self._hops_list(last)
            nearer = hops[here] - 1
            known = tuple(link for link in self._links_of[here] if hops[link[1]] == nearer)
            self._next_hops[here, last] = known
        return known

    def across(self, first: int, last: int) -> Rows:
        """Return the port numbers of all shortest paths from switch to switch, of shape (paths, hops), sorted."""
        known = self._across.get((first, last))
        if known is None:
            known = self._expand(first, last)
            self._across[first, last] = known
            if len(self._across) > _REMEMBERED:
                self._across.popitem(last=False)
        return known

    def between_switches(self, first: str, last: str, without: Collection[str] = ()) -> Iterator[Path]:
        """Find the shortest paths from one switch to another one by one, sorted; none if no path joins them.

        Of these, those that leave `first` and enter none of the switches `without`.
        """
        if self._distance(first, last) < _UNREACHABLE:
            avoided = {self._switches[switch] for switch in without}
            yield from self._onward(self._switches[first], self._switches[last], avoided)

    def _onward(self, here: int, last: int, avoided: set[int]) -> Iterator[Path]:
        """The paths that enter no `avoided` switch; those that lead nowhere are added, so that none is tried twice."""
        if here == last:
            yield ()
            return
        is_dead_end = True
        for port, following in self.next_hops(here, last):
            if following not in avoided:
                for rest in self._onward(following, last, avoided):
                    is_dead_end = False
                    yield (port, *rest)
        if is_dead_end:
            avoided.add(here)

    def leads(self, source: str, destination: str, path: Path) -> bool:
        """Return whether a path, shortest or not, joins two hosts without entering a switch twice."""
        peers = self.network.peers
        nodes = [port.node for port in path]
        following = [peers[port].node if port in peers else None for port in path]
        return (
            path[:1] != ()
            and len(set(nodes)) == len(nodes)
            and nodes[0] in {port.node for port in self._attachments(source)}
            and following == [*nodes[1:], destination]
            and self._switches.keys() >= set(nodes)
        )

    def _expand(self, first: int, last: int) -> Rows:
        numbers, peers = self._links
        width = peers.shape[1]
        hops = self._hops(last)
        # From each path's number at a hop to its number at the one before.
        taken: list[tuple[NDArray[np.intp], Rows]] = []
        here = np.array([first], dtype=np.int32)
        for remaining in range(int(hops[first]), 0, -1):
            found = np.flatnonzero(hops[peers[here]].ravel() == remaining - 1)
            path, column = np.divmod(found, width)
            node = here[path]
            taken.append((path, numbers[node, column]))
            here = peers[node, column]
        rows = np.empty((len(here), len(taken)), dtype=np.int32)
        at = np.arange(len(here))
        for hop in range(len(taken) - 1, -1, -1):
            path, ports = taken[hop]
            rows[:, hop] = ports[at]
            at = path[at]
        return rows

    def _attachments(self, host: str) -> list[Port]:
        """The switches' ports to a host, by the host's ports."""
        return self._attached.get(host, [])

    @cached_property
    def _attached(self) -> dict[str, list[Port]]:
        peers = self.network.peers
        return {
            host: [peers[port] for port in self.network.ports[host] if peers[port].node in self._switches]
            for host in self.network.hosts
        }

    def _distance(self, source: str, destination: str) -> int:
        return int(self._hops(self._switches[destination])[self._switches[source]])

    def _hops(self, last: int) -> NDArray[np.int16]:
        """Distances of all switches to one; an additional place at the end, for no switch, is unreachable."""
        if last not in self._hops_to:
            self._measure([last])
        return self._hops_to[last]

    def _hops_list(self, last: int) -> list[int]:
        if last not in self._hops_lists:
            self._hops_lists[last] = self._hops(last).tolist()
        return self._hops_lists[last]

    @cached_property
    def _links(self) -> tuple[Rows, NDArray[np.int32]]:
        """For each switch its ports to switches by number, and the switches behind; the rest is -1: no switch."""
        links = self._links_of
        shape = (len(links), max(map(len, links), default=0))
        numbers, peers = np.full(shape, -1, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
        for switch, ends in enumerate(links):
            if ends:
                numbers[switch, : len(ends)] = [self.numbers[port] for port, _ in ends]
                peers[switch, : len(ends)] = [peer for _, peer in ends]
        return numbers, peers

    @cached_property
    def _links_of(self) -> list[list[tuple[Port, int]]]:
        """For each switch its ports to switches, sorted, with the switches behind."""
        links: list[list[tuple[Port, int]]] = []
        for switch in self.network.switches:
            ends = ((port, self._switches.get(self.network.peers[port].node)) for port in self.network.ports[switch])
            links.append([(port, peer) for port, peer in ends if peer is not None])
        return links

    @cached_property
    def _adjacency(self) -> Any:
        """Whether two switches are joined, as a sparse array."""
        from scipy.sparse import csr_array

        numbers, peers = self._links
        switch, column = np.nonzero(numbers >= 0)
        entries = (np.ones(len(switch), dtype=np.float32), (switch, peers[switch, column]))
        return csr_array(entries, shape=(len(numbers), len(numbers)))

    def _measure(self, destinations: Sequence[int]) -> None:
        """Find the distances of all switches to these, level by level for all at once."""
        hops = np.full((len(self.network.switches), len(destinations)), _UNREACHABLE, dtype=np.int16)
        reached = np.zeros(hops.shape, dtype=np.float32)
        reached[destinations, np.arange(len(destinations))] = 1
        level = 0
        while reached.any():
            hops[reached > 0] = level
            level += 1
            reached = np.where(hops == _UNREACHABLE, self._adjacency @ reached, 0)
        padded = np.vstack((hops, np.full((1, len(destinations)), _UNREACHABLE, dtype=np.int16)))
        for column, destination in enumerate(destinations):
            self._hops_to[destination] = np.ascontiguousarray(padded[:, column])


def _same(first: Path, second: Path) -> bool:
    return first == second


def _order(path: Path) -> list[tuple[tuple[str, int], int]]:
    return [(natural(port.node), port.number) for port in path]
