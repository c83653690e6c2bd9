# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Output of the core: messages for switches with one barrier each, timers, events for operators."""

import heapq
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from barewire.sdn.openflow.messages import AddRule, BarrierRequest, DeleteRule, SetMeter, ToSwitch

Then = Callable[[bool], None]
# Whether there is time for another timer; its argument is whether the last one was of FIRST_S.
HasTime = Callable[[bool], bool]

# Messages that are followed by a barrier.
_CHANGES = (AddRule, DeleteRule, SetMeter)
# A time for `at`: before all else that is due, as far as there is time in this turn.
FIRST_S = sys.float_info.min


@dataclass(frozen=True)
class Event:
    """An event for operators: its kind and a description."""

    kind: str
    text: str


@dataclass
class _Line:
    """Pending messages and barriers of one switch."""

    messages: list[ToSwitch] = field(default_factory=list)
    awaiting: list[Then] = field(default_factory=list)
    # Barriers sent, with their callbacks.
    barriers: dict[int, list[Then]] = field(default_factory=dict)


class Outbox:
    """Collects the messages of one turn. Rules sent in one turn share one barrier per switch."""

    def __init__(self) -> None:
        """Begin empty."""
        self.events: list[Event] = []
        self._lines: dict[str, _Line] = {}
        # Those with something to send, as an ordered set.
        self._to_take: dict[str, None] = {}
        self._tokens = itertools.count(1)
        self._later: list[tuple[float, int, Callable[[float], None]]] = []

    def open(self, switch: str) -> None:
        """Handle a new connection: messages over the earlier one will not be confirmed."""
        self.close(switch)
        self._lines[switch] = _Line()

    def close(self, switch: str) -> None:
        """Handle the end of a connection: pending callbacks get False."""
        line = self._lines.pop(switch, None)
        if line is not None:
            for waiting in (*line.barriers.values(), line.awaiting):
                for then in waiting:
                    then(False)

    def send(self, switch: str, message: ToSwitch) -> None:
        """Send a message at the end of this turn; dropped if the switch is not connected."""
        if (line := self._lines.get(switch)) is not None:
            line.messages.append(message)
            self._to_take[switch] = None

    def when_confirmed(self, switch: str, then: Then) -> None:
        """Call `then(True)` once all messages sent so far are executed, `then(False)` if they never will be."""
        line = self._lines.get(switch)
        if line is None:
            then(False)
        else:
            line.awaiting.append(then)
            self._to_take[switch] = None

    def confirmed(self, switch: str, token: int) -> None:
        """Handle a barrier reply."""
        line = self._lines.get(switch)
        for then in line.barriers.pop(token, ()) if line is not None else ():
            then(True)

    def at(self, when_s: float, act: Callable[[float], None]) -> None:
        """Call `act(now)` at a time; 0 is in this turn, however much else is due."""
        heapq.heappush(self._later, (when_s, next(self._tokens), act))

    def due(self, now: float, has_time: HasTime) -> None:
        """Call all due timers with a time of 0, others while there is time, and at least one; the rest remain due."""
        until_s = now
        while self._later and self._later[0][0] <= until_s:
            when_s, _, act = heapq.heappop(self._later)
            act(now)
            if when_s and until_s and not has_time(when_s == FIRST_S):
                until_s = 0.0  # what these timers have begun is still sent in this turn

    def next_s(self) -> float | None:
        """Return the next deadline."""
        return self._later[0][0] if self._later else None

    def emit(self, kind: str, text: str) -> None:
        """Emit an event."""
        self.events.append(Event(kind, text))

    def take(self) -> dict[str, list[ToSwitch]]:
        """Return this turn's messages by switch, with a barrier after rules."""
        taken: dict[str, list[ToSwitch]] = {}
        for switch in self._to_take:
            if (line := self._lines.get(switch)) is None:
                continue  # its connection has ended
            if line.awaiting or any(isinstance(message, _CHANGES) for message in line.messages):
                token = next(self._tokens)
                line.barriers[token], line.awaiting = line.awaiting, []
                line.messages.append(BarrierRequest(token))
            if line.messages:
                taken[switch], line.messages = line.messages, []
        self._to_take.clear()
        return taken
