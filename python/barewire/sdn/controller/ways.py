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
class Way:
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


class Ways:
    """All of them, by key and by number, with indexes."""

    def __init__(self) -> None:
        """No flow has a path."""
        self._by_key: dict[FlowKey, Way] = {}
        self._by_number: dict[int, Way] = {}
        self._placed: dict[FlowKey, Placed] = {}
        self._crossing: dict[Port, int] = {}
        self._through: defaultdict[str, set[Way]] = defaultdict(set)
        # What strategies see: live, not to be changed by them.
        self.placed = MappingProxyType(self._placed)
        self.crossing = MappingProxyType(self._crossing)

    def __iter__(self) -> Iterator[Way]:
        """All, the oldest first."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_key)

    def get(self, key: FlowKey) -> Way | None:
        """Return a flow's."""
        return self._by_key.get(key)

    def numbered(self, number: int) -> Way | None:
        """Return the one with the number that its rules' cookies have."""
        return self._by_number.get(number)

    def at(self, switch: str) -> set[Way]:
        """Return those that have a rule in a switch, or are to have one."""
        return set(self._through.get(switch, ()))

    def over(self, port: Port) -> list[Way]:
        """Return those whose path leaves through a port."""
        return [way for way in self._through.get(port.node, ()) if port in way.path]

    def add(self, way: Way) -> None:
        """Add one."""
        self._by_key[way.key] = self._by_number[way.number] = way
        self._index(way)

    def remove(self, way: Way) -> None:
        """Forget one."""
        self.leave(way)
        del self._by_key[way.key], self._by_number[way.number]
        for switch in {*way.standing, *(port.node for port in way.path)}:
            self.forget(way, switch)

    def leave(self, way: Way) -> None:
        """Take one out of what strategies see, until `put` places it anew."""
        if self._placed.pop(way.key, None) is not None:
            for port in way.path:
                self._crossing[port] -= 1
                if not self._crossing[port]:
                    del self._crossing[port]

    def put(self, way: Way, placed: Placed) -> None:
        """Give one a path, or the same path with another rate or profile."""
        if self._placed.get(way.key) is way.placed and way.path == placed.path:
            way.placed = self._placed[way.key] = placed
            return
        self.leave(way)
        way.placed = placed
        self._index(way)

    def forget(self, way: Way, switch: str) -> None:
        """A switch has no rule of it any more."""
        if (there := self._through.get(switch)) is not None:
            there.discard(way)
            if not there:
                del self._through[switch]

    def _index(self, way: Way) -> None:
        self._placed[way.key] = way.placed
        for port in way.path:
            self._crossing[port] = self._crossing.get(port, 0) + 1
        for switch in {*way.standing, *(port.node for port in way.path)}:
            self._through[switch].add(way)
