# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller with sockets and clock: connects the switches' channels to the core."""

import asyncio
import copy
import gc
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from barewire.sdn.classify.model import Model
from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.tenants import Tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.election import NUMBER_BITS, Election, is_usable
from barewire.sdn.controller.frames import LLDP
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.channel import Channel, Listener
from barewire.sdn.openflow.messages import (
    FromSwitch,
    PacketIn,
    PortCounters,
    PortList,
    PortStatus,
    Request,
    RequestKind,
    RoleReply,
    RoleRequest,
    SwitchDown,
    SwitchError,
    SwitchUp,
    ToSwitch,
)

Tell = Callable[[Event], None]
# Processor time spent on switches' messages, and on timers, before others have their turn. Timers that are not urgent
# have less while messages wait: new flows wait for no statistics.
MESSAGES_S, TIMERS_S, BUSY_TIMERS_S = 0.002, 0.001, 0.0005
_LLDP = LLDP.to_bytes(2, "big")
# Messages that wait at most. What they mean is bounded by the switches' rules, which hold floods off.
WAITING_MAX = 20_000


class Other(Protocol):
    """The other controller of a pair."""

    url: str

    def answers(self, now: float) -> bool:
        """Return whether it has given a sign of life lately."""

    def leads(self, now: float) -> bool:
        """Return whether it has said lately that it leads."""


class Shell:
    """Runs a controller in the running event loop.

    In a pair the core handles only switches that have accepted this controller as their master. A standby's core gets
    the leader's state and the counters of ports; when a leader is replaced, it begins with a new core.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        hosts: Hosts,
        addresses: Sequence[str],
        tell: Tell,
        tenants: Tenants | None = None,
        model: Model | None = None,
        is_paired: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`addresses` are the addresses to listen on; `tell` is called with events. WrongUse for an invalid address.

        `is_paired`: another controller may lead. `tls` is for the addresses that begin with `ssl:`.
        """
        self._loop = asyncio.get_running_loop()
        self._settings, self._policy, self._tenants, self._model = settings, policy, tenants, model
        self._hosts = copy.deepcopy(hosts) if is_paired else hosts
        self.core = self._new_core(hosts)
        self.election = Election(partial(secrets.randbits, NUMBER_BITS), self._loop.time()) if is_paired else None
        self.peer: Other | None = None
        # Called with each new core.
        self.renewed: Callable[[Controller], None] = lambda _: None
        self._tell = tell
        self._listeners = [Listener(place, self._heard, self._closed, tls) for place in addresses]
        self._channels: dict[str, Channel] = {}
        self._names: dict[Channel, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Messages in the order of their arrival; those about ports and links, which are few, pass the others.
        self._news: deque[tuple[Channel, FromSwitch]] = deque()
        self._waiting: deque[tuple[Channel, FromSwitch]] = deque()
        self._turn_is_due = False
        # The datapath ids of connected switches, and the switches that the core controls.
        self._ids: dict[str, int] = {}
        self._controlled: set[str] = set()
        self._counted_s = 0.0
        # One thread, so that plans are made one after another.
        self._planner = ThreadPoolExecutor(1, "planner")
        self._is_over = False

    @property
    def now(self) -> float:
        """The controller's clock."""
        return self._loop.time()

    @property
    def switches(self) -> int:
        """The number of connected switches."""
        return len(self._channels)

    @property
    def is_leader(self) -> bool:
        """Whether this controller controls the network."""
        return self.election is None or self.election.is_leader

    async def open(self) -> None:
        """Listen for switches. MachineCannot if the system refuses."""
        self._loop.set_exception_handler(self._failed)
        for listener in self._listeners:
            await listener.open()
        self.turn()

    async def close(self) -> None:
        """Close all connections; the switches keep their rules and continue to forward."""
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            await listener.close()
        # What still ends begins no turn, which could want a plan.
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._planner.shutdown(wait=False, cancel_futures=True)

    def turn(self) -> None:
        """Poll the election and the leader's core, send their messages, and schedule the next poll."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self.election is not None:
                self._elect(self.election)
            if self.is_leader:
                begun_s = time.thread_time()

                def has_time(is_urgent: bool) -> bool:
                    limit_s = BUSY_TIMERS_S if self._waiting and not is_urgent else TIMERS_S
                    return time.thread_time() < begun_s + limit_s

                self._send(self.core.poll(self.now, has_time))
                for event in self.core.take_events():
                    self._tell(event)
        finally:
            later = [self.core.next_s(self.now)] if self.is_leader else []
            later += [self.election.next_s()] if self.election is not None else []
            self._timer = self._loop.call_at(min(later), self.turn)

    def reset(self) -> None:
        """Begin with a new core, which knows only what this controller was started with."""
        self.core = self._new_core(copy.deepcopy(self._hosts))
        self._controlled.clear()
        self.renewed(self.core)
        # The parts of the old core refer to each other, and the daemon's collector would keep them for an hour.
        gc.collect()

    def _new_core(self, hosts: Hosts) -> Controller:
        core = Controller(
            self._settings,
            self._policy,
            hosts,
            secrets.token_bytes(32),
            secrets.randbits(32),
            self._tenants,
            self._model,
        )
        core.run = self._run
        return core

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report a mistake of our own. It has ended one callback; the next ones are called as ever."""
        loop.default_exception_handler(context)
        self._tell(Event("failed", repr(context.get("exception", context["message"]))))

    def _send(self, messages: Mapping[str, Iterable[ToSwitch]]) -> None:
        for switch, some in messages.items():
            if (channel := self._channels.get(switch)) is not None:
                channel.send(some)

    def _elect(self, election: Election) -> None:
        """Send what the election requires, and become the leader or the standby."""
        now = self.now
        self._send(election.poll(now))
        for change in election.take_changes():
            if change.is_leader:
                self.core.jobs.renew_all(now)
                self.core.recognition.renew_all(now)
                self.core.jobs_changed(now)
                self._tell(Event("leader", f"this controller leads: {change.reason}"))
            else:
                self.reset()
                self._tell(Event("standby", f"this controller stands by: {change.reason}"))
        if not election.is_leader and now >= self._counted_s + self._settings.port_statistics_s:
            self._counted_s = now
            self._send({name: [Request(RequestKind.PORT_COUNTERS)] for name in self._channels})

    def _heard_in_pair(self, election: Election, channel: Channel, name: str, event: FromSwitch) -> None:
        """Pass on to the core what concerns it; the rest decides who leads."""
        now = self.now
        match event:
            case SwitchUp():
                channel.send(election.connected(name))
            case RoleReply(generation=int() as generation) if not is_usable(generation):
                why = f"its generation {generation:#x}, of another program, leaves no newer one: restart the switch"
                self._refuse(channel, name, why)
            case RoleReply():
                if election.replied(name, event, now):
                    self._controlled.add(name)
                    self.core.handle(name, SwitchUp(self._ids[name]), now)
            case SwitchError(is_not_master=True):
                election.refused(name, event, now)
            case SwitchError(request=RoleRequest()):
                why = f"it refuses to give roles ({event.text}), which a pair of controllers needs"
                self._refuse(channel, name, why)
            case PortCounters(counters):
                self.core.rates.counted(name, counters, now)
            case _ if name in self._controlled:
                self.core.handle(name, event, now)

    def _refuse(self, channel: Channel, name: str, why: str) -> None:
        """Disconnect a switch that no pair can control."""
        self._tell(Event("connection refused", f"{name}: {why}"))
        # What else it has sent is no reason to step down.
        for waiting in (self._news, self._waiting):
            others = [one for one in waiting if one[0] is not channel]
            waiting.clear()
            waiting.extend(others)
        channel.close(why)

    def _run(self, work: Callable[[], Any], then: Callable[[Any, float], None], _now: float) -> None:
        def finished(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled() and not self._is_over:
                then(done.result(), self.now)
                self.turn_soon()

        self._loop.run_in_executor(self._planner, work).add_done_callback(finished)

    def _heard(self, channel: Channel, events: list[FromSwitch]) -> None:
        if self.election is not None and (name := self._names.get(channel)) is not None:
            self.election.switch_heard(name, self.now)  # now, however late its messages have their turn
        for event in events:
            if isinstance(event, SwitchUp):
                self._up(channel, event)
                self._handle(channel, event)
            else:
                (self._news if _is_news(event) else self._waiting).append((channel, event))
        self.turn_soon()

    def _handle(self, channel: Channel, event: FromSwitch) -> None:
        name = self._names.get(channel)
        if name is None or self._channels.get(name) is not channel:
            return  # its connection has ended meanwhile, or was replaced by a newer one
        if self.election is not None:
            self._heard_in_pair(self.election, channel, name, event)
        else:
            self.core.handle(name, event, self.now)

    def turn_soon(self) -> None:
        """Take a turn after what is to be done now: one for the messages of all switches, requests and plans."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn_with_messages)

    def _turn_with_messages(self) -> None:
        if self._is_over:
            return
        self._turn_is_due = False
        until_s = time.thread_time() + MESSAGES_S
        try:
            while (waiting := self._news or self._waiting) and (
                time.thread_time() < until_s or len(waiting) > WAITING_MAX
            ):
                self._handle(*waiting.popleft())
        finally:  # also if one of them fails
            if self._news or self._waiting:
                self.turn_soon()
            self.turn()

    def _up(self, channel: Channel, event: SwitchUp) -> None:
        name = f"s{event.datapath_id}"
        before = self._channels.get(name)
        if before is not None:
            # It has reconnected before its old connection was detected as dead.
            self._down(name, "it connected again")
            before.close("it connected again")
        self._channels[name], self._names[channel], self._ids[name] = channel, name, event.datapath_id

    def _down(self, name: str, why: str) -> None:
        if self.election is not None:
            self.election.disconnected(name)
            self.core.rates.forget(name)
        if self.election is None or name in self._controlled:
            self._controlled.discard(name)
            self.core.handle(name, SwitchDown(why), self.now)

    def _closed(self, channel: Channel, why: str) -> None:
        name = self._names.pop(channel, None)
        if name is None:
            self._tell(Event("connection refused", f"a connection ended before its switch was known: {why}"))
        elif self._channels.get(name) is channel:
            del self._channels[name], self._ids[name]
            self._down(name, why)
            self.turn_soon()


def _is_news(event: FromSwitch) -> bool:
    """Whether a message is about ports and links: a failed link waits for no new flows, nor do probes of links."""
    if isinstance(event, PacketIn):
        return event.frame[12:14] == _LLDP
    return isinstance(event, PortStatus | PortList)
