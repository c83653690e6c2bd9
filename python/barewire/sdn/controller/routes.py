# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The flows that have a path, with the rules that stand for them, and which ports they leave through."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from barewire.sdn.flow import FlowKey, Placed
from barewire.sdn.openflow.messages import Match
from barewire.topology import Path, Port


@dataclass(eq=False)
class Route:
    """A placed flow. `standing` is the output port of each switch that has, or is about to have, a rule of it.

    `stages` are rules still to be sent, `waiting` the switches of the stage that was, `unsure` those whose rule may be
    the one before. A flow is `laid_s` since its last rule was confirmed, None while it is being laid.
    """

    number: int
    placed: Placed
    matches: tuple[tuple[Match, int], ...]
    seen_s: float
    why: str = ""
    known_by: str = "nothing"
    standing: dict[str, int] = field(default_factory=dict)
    stages: list[list[Port]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    # Switches whose table was full, where a rule to the flow's host stands in, and its output port.
    stood_in: dict[str, int] = field(default_factory=dict)
    laid_s: float | None = None
    # Confirmations of an earlier plan do not count for a later one.
    plan: int = 0
    # What it had carried when it was counted last; 0 is never.
    packets: int = 0
    bytes: int = 0
    counted_s: float = 0.0

    @property
    def key(self) -> FlowKey:
        """The flow's key."""
        return self.placed.flow.key

    @property
    def path(self) -> Path:
        """The path it has, or is getting."""
        return self.placed.path

    @property
    def is_being_laid(self) -> bool:
        """Whether rules are under way."""
        return bool(self.stages or self.waiting)


class Routes:
    """All of them, by key and by number, with indexes."""

    def __init__(self) -> None:
        """No flow has a path."""
        self._by_key: dict[FlowKey, Route] = {}
        self._by_number: dict[int, Route] = {}
        self._placed: dict[FlowKey, Placed] = {}
        self._crossing: dict[Port, int] = {}
        self._through: defaultdict[str, set[Route]] = defaultdict(set)
        # What strategies see: live, not to be changed by them.
        self.placed = MappingProxyType(self._placed)
        self.crossing = MappingProxyType(self._crossing)

    def __iter__(self) -> Iterator[Route]:
        """All, the oldest first."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_key)

    def get(self, key: FlowKey) -> Route | None:
        """Return a flow's."""
        return self._by_key.get(key)

    def numbered(self, number: int) -> Route | None:
        """Return the one with the number that its rules' cookies have."""
        return self._by_number.get(number)

    def at(self, switch: str) -> set[Route]:
        """Return those that have a rule in a switch, or are to have one."""
        return set(self._through.get(switch, ()))

    def over(self, port: Port) -> list[Route]:
        """Return those whose path leaves through a port."""
        return [route for route in self._through.get(port.node, ()) if port in route.path]

    def add(self, route: Route) -> None:
        """Add one."""
        self._by_key[route.key] = self._by_number[route.number] = route
        self._index(route)

    def remove(self, route: Route) -> None:
        """Forget one."""
        self.leave(route)
        del self._by_key[route.key], self._by_number[route.number]
        for switch in {*route.standing, *(port.node for port in route.path)}:
            self.forget(route, switch)

    def leave(self, route: Route) -> None:
        """Take one out of what strategies see, until `put` places it anew."""
        if self._placed.pop(route.key, None) is not None:
            for port in route.path:
                self._crossing[port] -= 1
                if not self._crossing[port]:
                    del self._crossing[port]

    def put(self, route: Route, placed: Placed) -> None:
        """Give one a path, or the same path with another rate or profile."""
        if self._placed.get(route.key) is route.placed and route.path == placed.path:
            route.placed = self._placed[route.key] = placed
            return
        self.leave(route)
        route.placed = placed
        self._index(route)

    def forget(self, route: Route, switch: str) -> None:
        """A switch has no rule of it any more."""
        if (there := self._through.get(switch)) is not None:
            there.discard(route)
            if not there:
                del self._through[switch]

    def _index(self, route: Route) -> None:
        self._placed[route.key] = route.placed
        for port in route.path:
            self._crossing[port] = self._crossing.get(port, 0) + 1
        for switch in {*route.standing, *(port.node for port in route.path)}:
            self._through[switch].add(route)
