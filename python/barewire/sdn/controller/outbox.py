# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the core wants done: messages for switches with one barrier each, things to do later, what to tell people."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from barewire.sdn.openflow.messages import Confirm, DeleteRule, SetRule, ToSwitch

Then = Callable[[bool], None]


@dataclass(frozen=True)
class Event:
    """Something that an operator may want to know: what happened, and in words."""

    kind: str
    text: str


@dataclass
class _Line:
    """What is under way to one switch."""

    messages: list[ToSwitch] = field(default_factory=list)
    awaiting: list[Then] = field(default_factory=list)
    # Each barrier sent, with who waits for it.
    barriers: dict[int, list[Then]] = field(default_factory=dict)


class Outbox:
    """Collects one turn's messages. Rules sent in one turn share one barrier for each switch."""

    def __init__(self) -> None:
        """Begin empty."""
        self.events: list[Event] = []
        self._lines: dict[str, _Line] = {}
        self._tokens = itertools.count(1)
        self._later: list[tuple[float, int, Callable[[float], None]]] = []

    def open(self, switch: str) -> None:
        """A switch has connected: what was under way over its earlier connection will not be confirmed."""
        self.close(switch)
        self._lines[switch] = _Line()

    def close(self, switch: str) -> None:
        """A connection has ended: who waits for the switch is told that it will not confirm."""
        line = self._lines.pop(switch, None)
        if line is not None:
            for waiting in (*line.barriers.values(), line.awaiting):
                for then in waiting:
                    then(False)

    def send(self, switch: str, message: ToSwitch) -> None:
        """Send a message at the end of this turn; dropped if the switch is not connected."""
        if (line := self._lines.get(switch)) is not None:
            line.messages.append(message)

    def when_confirmed(self, switch: str, then: Then) -> None:
        """Call `then(True)` when all that was sent to a switch until now is done, `then(False)` if it never will be."""
        line = self._lines.get(switch)
        if line is None:
            then(False)
        else:
            line.awaiting.append(then)

    def confirmed(self, switch: str, token: int) -> None:
        """Take the answer to a barrier."""
        line = self._lines.get(switch)
        for then in line.barriers.pop(token, ()) if line is not None else ():
            then(True)

    def at(self, when_s: float, act: Callable[[float], None]) -> None:
        """Call `act(now)` at a time."""
        heapq.heappush(self._later, (when_s, next(self._tokens), act))

    def due(self, now: float) -> None:
        """Do what is due."""
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2](now)

    def next_s(self) -> float | None:
        """Return when something is due next."""
        return self._later[0][0] if self._later else None

    def say(self, kind: str, text: str) -> None:
        """Tell people."""
        self.events.append(Event(kind, text))

    def take(self) -> dict[str, list[ToSwitch]]:
        """Return this turn's messages by switch; whoever got rules is asked for a barrier."""
        taken: dict[str, list[ToSwitch]] = {}
        for switch, line in self._lines.items():
            if line.awaiting or any(isinstance(message, SetRule | DeleteRule) for message in line.messages):
                token = next(self._tokens)
                line.barriers[token], line.awaiting = line.awaiting, []
                line.messages.append(Confirm(token))
            if line.messages:
                taken[switch], line.messages = line.messages, []
        return taken
