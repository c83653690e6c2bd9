# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller with sockets and clock: connects the switches' channels to the core."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.tenants import Tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import Pattern
from barewire.sdn.openflow.channel import Channel, Listener
from barewire.sdn.openflow.messages import FromSwitch, SwitchDown, SwitchUp

Tell = Callable[[Event], None]
Patterns = tuple[Pattern, ...]


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
    ) -> None:
        """`addresses` are the addresses to listen on; `tell` is called with events. WrongUse for an invalid address."""
        self._loop = asyncio.get_running_loop()
        self.core = Controller(settings, policy, hosts, secrets.token_bytes(32), secrets.randbits(32), tenants)
        self._tell = tell
        self._listeners = [Listener(place, self._heard, self._closed) for place in addresses]
        self._channels: dict[str, Channel] = {}
        self._names: dict[Channel, str] = {}
        self._timer: asyncio.TimerHandle | None = None
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
            for switch, messages in self.core.poll(self.now).items():
                if (channel := self._channels.get(switch)) is not None:
                    channel.send(messages)
            for event in self.core.take_events():
                self._tell(event)
        finally:
            self._timer = self._loop.call_at(self.core.next_s(self.now), self.turn)

    def _run(self, work: Callable[[], Patterns], then: Callable[[Patterns], None]) -> None:
        def finished(done: "asyncio.Future[Patterns]") -> None:
            if not done.cancelled():
                then(done.result())
                self.turn()

        self._loop.run_in_executor(self._planner, work).add_done_callback(finished)

    def _heard(self, channel: Channel, events: list[FromSwitch]) -> None:
        now = self.now
        for event in events:
            if isinstance(event, SwitchUp):
                self._up(channel, event)
            name = self._names.get(channel)
            if name is not None:
                self.core.handle(name, event, now)
        # One turn for the messages of all switches that have come by now.
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._heard_all)

    def _heard_all(self) -> None:
        self._turn_is_due = False
        self.turn()

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
