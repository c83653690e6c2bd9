# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which ports are up and which links join switches, by LLDP probes; no clock, no I/O.

s1:3 and s5:1 are peers if a probe from s1:3 arrived at s5:1 and another in the other direction, both ports are up, both
switches are connected, and the link has not failed too often recently.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.messages import PortState
from barewire.topology import Port

# Failures of a link are counted over this time.
FALLS_WINDOW_S = 60.0
# Port numbers from here on are reserved by OpenFlow (OFPP_MAX), such as the switch's local port.
RESERVED_PORTS = 0xFFFF_FF00


@dataclass
class _PortState:
    is_up: bool
    rate_bit_s: int | None
    up_since_s: float
    name: str


class Discovery:
    """The switches, their ports and the links between them. `peers` are the links available for routing."""

    def __init__(self, settings: Settings) -> None:
        """Begin without switches."""
        self._settings = settings
        self._ports: dict[str, dict[int, _PortState]] = {}
        self._connected: set[str] = set()
        self._probe_at_s: dict[str, float] = {}
        # By the port that sent a probe: where it last arrived, and when.
        self._heard: dict[Port, tuple[Port, float]] = {}
        self._falls: dict[Port, list[float]] = {}
        # Ports that have led to a switch since they came up: no hosts are learnt there.
        self._between: set[Port] = set()
        # By switch: which ports can be edges until when, beside those that came up since it connected first.
        self._edges: dict[str, tuple[frozenset[int], float]] = {}
        self._since_s: dict[str, float] = {}
        self._due_s = 0.0
        # Before these times no link has lost its probes, and no link's hold-off has ended.
        self._lost_s, self._held_s = 0.0, math.inf
        self.peers: dict[Port, Port] = {}

    @property
    def switches(self) -> list[str]:
        """Return the known switches, connected or not."""
        return list(self._ports)

    def is_connected(self, switch: str) -> bool:
        """Return whether a switch is connected."""
        return switch in self._connected

    def ports(self, switch: str) -> dict[int, PortState]:
        """Return a switch's ports by number."""
        known = self._ports.get(switch, {})
        return {number: PortState(number, port.name, port.is_up, port.rate_bit_s) for number, port in known.items()}

    def rate_bit_s(self, port: Port) -> int | None:
        """Return the rate of a port, None if unknown."""
        state = self._ports.get(port.node, {}).get(port.number)
        return self._settings.link_rate_bit_s or (state.rate_bit_s if state else None)

    def switch_up(self, switch: str, ports: Iterable[PortState], now: float) -> None:
        """Add a switch's ports when it connects, or connects again."""
        before = self._ports.get(switch, {})
        self._since_s.setdefault(switch, now)
        self._ports[switch] = {}
        self._connected.add(switch)
        self._probe_at_s[switch] = now
        for port in ports:
            if port.number < RESERVED_PORTS:
                known = before.get(port.number)
                is_other = known is not None and known.name != port.name
                since = known.up_since_s if known is not None and known.is_up and not is_other else now
                self._ports[switch][port.number] = _PortState(port.is_up, port.rate_bit_s, since, port.name)
                if not port.is_up or is_other:
                    self._went_down(Port(switch, port.number), now)
        for number in before.keys() - self._ports[switch].keys():
            self._went_down(Port(switch, number), now)
        # Probes missed while it was disconnected do not count as losses.
        for sender, (receiver, _) in list(self._heard.items()):
            if switch in (sender.node, receiver.node):
                self._heard[sender] = receiver, now
        self._update(now)

    def switch_down(self, switch: str, now: float) -> None:
        """Stop placing flows over a disconnected switch; its links are kept."""
        self._connected.discard(switch)
        self._probe_at_s.pop(switch, None)
        self._update(now)

    def forget(self, switch: str, now: float) -> None:
        """Remove a switch."""
        for sender, (receiver, _) in list(self._heard.items()):
            if switch in (sender.node, receiver.node):
                del self._heard[sender]
        self._ports.pop(switch, None)
        self._since_s.pop(switch, None)
        self._edges.pop(switch, None)
        self._probe_at_s.pop(switch, None)
        self._between = {port for port in self._between if port.node != switch}
        self._falls = {port: falls for port, falls in self._falls.items() if port.node != switch}
        self._update(now)

    def update_port(self, switch: str, port: PortState, is_gone: bool, now: float) -> None:
        """Update a port."""
        ports = self._ports.get(switch)
        if ports is None or port.number >= RESERVED_PORTS:
            return
        known = ports.get(port.number)
        is_up = port.is_up and not is_gone
        is_other = known is not None and known.name != port.name
        was_up = known is not None and known.is_up and not is_other
        since = known.up_since_s if known is not None and was_up else now
        if is_gone:
            ports.pop(port.number, None)
        else:
            ports[port.number] = _PortState(is_up, port.rate_bit_s, since, port.name)
        if is_up and not was_up and switch in self._connected:
            self._probe_at_s[switch] = now
        if not is_up or is_other:
            self._went_down(Port(switch, port.number), now)
        self._update(now)

    def probe_arrived(self, sender: Port, receiver: Port, now: float) -> bool:
        """Record a probe's arrival; True if the other direction should be probed at once."""
        if not (self.is_up(sender) and self.is_up(receiver)):
            return False
        before = self._heard.get(sender)
        if before is not None and before[0] != receiver:
            self._forget_probes(sender, now)
        self._heard[sender] = receiver, now
        self._between |= {sender, receiver}
        if before is None or before[0] != receiver:
            self._update(now)
        return receiver not in self._heard

    def is_between_switches(self, port: Port) -> bool:
        """Return whether a port has led to a switch, possibly its own, since it came up."""
        return port in self._between

    def is_up(self, port: Port) -> bool:
        """Return whether a port is up, as far as its switch has said."""
        state = self._ports.get(port.node, {}).get(port.number)
        return state is not None and state.is_up

    def is_settled(self, port: Port, now: float) -> bool:
        """Return whether a port has been up long enough to know whether it leads to a switch."""
        state = self._ports.get(port.node, {}).get(port.number)
        return state is not None and state.is_up and now >= state.up_since_s + self._settings.settle_s

    def expect_edges(self, switch: str, numbers: Iterable[int], until_s: float) -> None:
        """Let other ports of a switch be no edges until then: they may lead to switches that are still to connect."""
        self._edges[switch] = frozenset(numbers), until_s

    def edge_ports(self, now: float) -> list[Port]:
        """Return the ports of connected switches that lead to no switch."""
        ports = [Port(switch, number) for switch in self._connected for number in self._ports[switch]]
        return [port for port in ports if port not in self._between and self._is_edge(port, now)]

    def _is_edge(self, port: Port, now: float) -> bool:
        numbers, until_s = self._edges.get(port.node, (frozenset[int](), 0.0))
        came_up = self._ports[port.node][port.number].up_since_s > self._since_s[port.node]
        return (now >= until_s or port.number in numbers or came_up) and self.is_settled(port, now)

    def due_probes(self, now: float) -> list[Port]:
        """Return the ports to probe now; links with missing probes fail, links after their hold-off are used again."""
        if now < self._due_s:
            return []
        # Some hundred switches are due one by one: looking at all links for each would take all the time.
        if self._forget_lost(now) or now >= self._held_s:
            self._update(now)
        due = []
        for switch, at_s in list(self._probe_at_s.items()):
            if at_s <= now:
                self._probe_at_s[switch] = now + self._settings.probe_s
                due += [Port(switch, number) for number, port in self._ports[switch].items() if port.is_up]
        soonest = min(self._probe_at_s.values(), default=now + self._settings.probe_s)
        self._due_s = min(soonest, self._held_s)
        return due

    def next_s(self) -> float:
        """Return when `due_probes` has something to do."""
        return self._due_s

    def _went_down(self, port: Port, now: float) -> None:
        """Handle a port that went down, or whose number means another port: another device may be behind it."""
        self._forget_probes(port, now)
        self._between.discard(port)

    def _forget_lost(self, now: float) -> bool:
        """Forget links with missing probes, if any can have some by now; return whether any had."""
        if now <= self._lost_s:
            return False
        after_s = self._settings.probe_s * (self._settings.probes_lost + 0.5)
        has_lost, oldest_s = False, now
        for sender in list(self._heard):
            # Forgotten with the other direction, it is no second failure.
            receiver, heard_s = self._heard.get(sender, (sender, now))
            if sender.node not in self._connected or receiver.node not in self._connected:
                continue
            if now > heard_s + after_s:
                self._forget_probes(sender, now)
                has_lost = True
            else:
                oldest_s = min(oldest_s, heard_s)
        # What is heard from now on is later; so are the links of a switch that connects.
        self._lost_s = oldest_s + after_s
        return has_lost

    def _forget_probes(self, port: Port, now: float) -> None:
        """Remove the probes of both directions of a link; count a failure if it was in use."""
        if port in self.peers:
            for end in (port, self.peers[port]):
                recent = [fall for fall in self._falls.get(end, []) if fall > now - FALLS_WINDOW_S]
                self._falls[end] = [*recent[-16:], now]
        self._heard.pop(port, None)
        for sender in [sender for sender, (receiver, _) in self._heard.items() if receiver == port]:
            del self._heard[sender]

    def _held_until_s(self, port: Port) -> float:
        """When a failed port is used again."""
        falls = self._falls.get(port, [])
        state = self._ports.get(port.node, {}).get(port.number)
        if not falls or state is None:
            return 0.0
        recent = sum(fall > falls[-1] - FALLS_WINDOW_S for fall in falls)
        hold_s: float = min(self._settings.hold_first_s * 2 ** (recent - 1), self._settings.hold_max_s)
        return max(state.up_since_s, falls[-1]) + hold_s

    def _update(self, now: float) -> None:
        self._due_s = 0.0
        held = map(self._held_until_s, self._falls)
        self._held_s = min((until_s for until_s in held if until_s > now), default=math.inf)
        peers: dict[Port, Port] = {}
        for sender, (receiver, _) in self._heard.items():
            back = self._heard.get(receiver)
            if (
                back is not None
                and back[0] == sender
                and sender.node != receiver.node
                and {sender.node, receiver.node} <= self._connected
                and now >= max(self._held_until_s(sender), self._held_until_s(receiver))
            ):
                peers[sender] = receiver
        if peers != self.peers:
            self.peers = peers
