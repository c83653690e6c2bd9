# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The placed flows, with their installed rules and output ports."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from barewire.sdn.flow import FlowKey, Placed
from barewire.sdn.openflow.messages import Match
from barewire.sdn.reservations import Reservations
from barewire.topology import Path, Port


@dataclass(eq=False)
class Route:
    """A placed flow. `installed` is the output port of each switch that has, or will have, a rule of it.

    `stages` are rules still to be sent, `waiting` the switches of the last stage sent, `unconfirmed` those whose rule
    may be the previous one. `installed_s` is the time of the last rule's confirmation, None during installation.
    """

    number: int
    placed: Placed
    matches: tuple[tuple[Match, int], ...]
    # Since when its rules count; unlike the time of its placement, it stays when the flow is placed again.
    began_s: float
    seen_s: float
    why: str = ""
    known_by: str = "nothing"
    installed: dict[str, int] = field(default_factory=dict)
    stages: list[list[Port]] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    unconfirmed: set[str] = field(default_factory=set)
    # Switches with a full table where an aggregate rule is used, and its output port.
    aggregated: dict[str, int] = field(default_factory=dict)
    installed_s: float | None = None
    # Number of the plan; confirmations of an earlier plan are ignored.
    plan: int = 0
    # Bytes at the last count, and its time; 0: never counted.
    packets: int = 0
    bytes: int = 0
    counted_s: float = 0.0
    # Number of the tenant whose meters its rules refer to.
    tenant: int | None = None

    @property
    def key(self) -> FlowKey:
        """The flow's key."""
        return self.placed.flow.key

    @property
    def path(self) -> Path:
        """The current path, possibly still being installed."""
        return self.placed.path

    @property
    def is_being_installed(self) -> bool:
        """Whether rules are being installed."""
        return bool(self.stages or self.waiting)


class Routes:
    """All placed flows, by key and by number, with indexes."""

    def __init__(self) -> None:
        """Begin without flows."""
        self._by_key: dict[FlowKey, Route] = {}
        self._by_number: dict[int, Route] = {}
        self._placed: dict[FlowKey, Placed] = {}
        self._crossing: dict[Port, int] = {}
        self._through: defaultdict[str, set[Route]] = defaultdict(set)
        # The number of flows that begin at a switch.
        self._beginning: Counter[str] = Counter()
        # The strategies' view: live, and read-only for them.
        self.placed = MappingProxyType(self._placed)
        self.crossing = MappingProxyType(self._crossing)
        self._crossing_of: defaultdict[str, dict[Port, int]] = defaultdict(dict)
        self.crossing_of_profiles = MappingProxyType(self._crossing_of)
        self.reservations = Reservations()

    def __iter__(self) -> Iterator[Route]:
        """All flows, the oldest first."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        """Number of flows."""
        return len(self._by_key)

    def get(self, key: FlowKey) -> Route | None:
        """Return the route of a flow."""
        return self._by_key.get(key)

    def numbered(self, number: int) -> Route | None:
        """Return the flow with this number, from its rules' cookies."""
        return self._by_number.get(number)

    def at(self, switch: str) -> set[Route]:
        """Return the flows whose path enters a switch, or that still have a rule there."""
        return set(self._through.get(switch, ()))

    def count_at(self, switch: str) -> int:
        """Return the number of the flows of `at`."""
        return len(self._through.get(switch, ()))

    def first_switches(self) -> list[str]:
        """Return the switches at which flows begin."""
        return [switch for switch, count in self._beginning.items() if count]

    def over(self, port: Port) -> list[Route]:
        """Return the flows that leave through a port."""
        return [route for route in self._through.get(port.node, ()) if port in route.path]

    def add(self, route: Route) -> None:
        """Add a flow."""
        self._by_key[route.key] = self._by_number[route.number] = route
        self._beginning[route.path[0].node] += 1
        self._index(route)

    def remove(self, route: Route) -> None:
        """Remove a flow."""
        self.leave(route)
        del self._by_key[route.key], self._by_number[route.number]
        self._beginning[route.path[0].node] -= 1
        for switch in {*route.installed, *(port.node for port in route.path)}:
            self.forget(route, switch)

    def leave(self, route: Route) -> None:
        """Hide a flow from strategies until `put`."""
        if self._placed.pop(route.key, None) is not None:
            self._load(route, -1)
            if route.placed.reserved_until_s == math.inf:
                self.reservations.change_endless(route.path, -1)

    def put(self, route: Route, placed: Placed) -> None:
        """Set a flow's path, rate or profile."""
        before = route.placed
        same_load = (placed.path, placed.is_idle, placed.flow.profile, placed.reserved_until_s) == (
            before.path,
            before.is_idle,
            before.flow.profile,
            before.reserved_until_s,
        )
        if self._placed.get(route.key) is route.placed and same_load:
            route.placed = self._placed[route.key] = placed
            return
        self.leave(route)
        self._beginning[before.path[0].node] -= 1
        self._beginning[placed.path[0].node] += 1
        route.placed = placed
        for switch in {port.node for port in before.path} - route.installed.keys():
            self.forget(route, switch)
        self._index(route)

    def forget(self, route: Route, switch: str) -> None:
        """Record that a switch has no rule of a flow."""
        if (routes := self._through.get(switch)) is not None:
            routes.discard(route)
            if not routes:
                del self._through[switch]

    def _index(self, route: Route) -> None:
        self._placed[route.key] = route.placed
        self._load(route, 1)
        if route.placed.reserved_until_s == math.inf:
            self.reservations.change_endless(route.path, 1)
        for switch in {*route.installed, *(port.node for port in route.path)}:
            self._through[switch].add(route)

    def _load(self, route: Route, change: int) -> None:
        of_profile = self._crossing_of[route.placed.flow.profile]
        if route.placed.is_idle:
            return
        for counts in (self._crossing, of_profile):
            for port in route.path:
                counts[port] = counts.get(port, 0) + change
                if not counts[port]:
                    del counts[port]
