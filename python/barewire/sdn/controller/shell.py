# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller with sockets and clock: connects the switches' channels to the core."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barewire.sdn.classify.model import Model
from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.tenants import Tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.channel import Channel, Listener
from barewire.sdn.openflow.messages import FromSwitch, SwitchDown, SwitchUp

Tell = Callable[[Event], None]
# Processor time spent on switches' messages, and on timers, before others have their turn.
MESSAGES_S, TIMERS_S = 0.004, 0.002
# Messages that wait at most. What they mean is bounded by the switches' rules, which hold floods off.
WAITING_MAX = 20_000


class Shell:
    """Runs a controller in the running event loop."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        hosts: Hosts,
        addresses: Sequence[str],
        tell: Tell,
        tenants: Tenants | None = None,
        model: Model | None = None,
    ) -> None:
        """`addresses` are the addresses to listen on; `tell` is called with events. WrongUse for an invalid address."""
        self._loop = asyncio.get_running_loop()
        self.core = Controller(settings, policy, hosts, secrets.token_bytes(32), secrets.randbits(32), tenants, model)
        self._tell = tell
        self._listeners = [Listener(place, self._heard, self._closed) for place in addresses]
        self._channels: dict[str, Channel] = {}
        self._names: dict[Channel, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[Channel, FromSwitch]] = deque()
        self._turn_is_due = False
        self.core.run = self._run
        # One thread, so that plans are made one after another.
        self._planner = ThreadPoolExecutor(1, "planner")

    @property
    def now(self) -> float:
        """The controller's clock."""
        return self._loop.time()

    async def open(self) -> None:
        """Listen for switches. MachineCannot if the system refuses."""
        for listener in self._listeners:
            await listener.open()
        self.turn()

    async def close(self) -> None:
        """Close all connections; the switches keep their rules and continue to forward."""
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            await listener.close()
        if self._timer is not None:
            self._timer.cancel()
        self._planner.shutdown(wait=False, cancel_futures=True)

    def turn(self) -> None:
        """Poll the core, send its messages, and schedule the next poll."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            until_s = time.thread_time() + TIMERS_S
            for switch, messages in self.core.poll(self.now, lambda: time.thread_time() < until_s).items():
                if (channel := self._channels.get(switch)) is not None:
                    channel.send(messages)
            for event in self.core.take_events():
                self._tell(event)
        finally:
            self._timer = self._loop.call_at(self.core.next_s(self.now), self.turn)

    def _run(self, work: Callable[[], Any], then: Callable[[Any, float], None], _now: float) -> None:
        def finished(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():
                then(done.result(), self.now)
                self.turn()

        self._loop.run_in_executor(self._planner, work).add_done_callback(finished)

    def _heard(self, channel: Channel, events: list[FromSwitch]) -> None:
        for event in events:
            if isinstance(event, SwitchUp):
                self._up(channel, event)
                self.core.handle(self._names[channel], event, self.now)
            else:
                self._waiting.append((channel, event))
        self._turn_soon()

    def _turn_soon(self) -> None:
        # One turn for the messages of all switches that have come by now.
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn_with_messages)

    def _turn_with_messages(self) -> None:
        self._turn_is_due = False
        now, until_s = self.now, time.thread_time() + MESSAGES_S
        while self._waiting and (time.thread_time() < until_s or len(self._waiting) > WAITING_MAX):
            channel, event = self._waiting.popleft()
            # Without a name, its connection has ended meanwhile.
            name = self._names.get(channel)
            if name is not None:
                self.core.handle(name, event, now)
        self.turn()
        if self._waiting:
            self._turn_soon()

    def _up(self, channel: Channel, event: SwitchUp) -> None:
        name = f"s{event.datapath_id}"
        before = self._channels.get(name)
        if before is not None:
            # It has reconnected before its old connection was detected as dead.
            del self._names[before]
            self.core.handle(name, SwitchDown("it connected again"), self.now)
            before.close("it connected again")
        self._channels[name], self._names[channel] = channel, name

    def _closed(self, channel: Channel, why: str) -> None:
        name = self._names.pop(channel, None)
        if name is None:
            self._tell(Event("connection refused", f"a connection ended before its switch was known: {why}"))
        elif self._channels.get(name) is channel:
            del self._channels[name]
            self.core.handle(name, SwitchDown(why), self.now)
            self.turn()
