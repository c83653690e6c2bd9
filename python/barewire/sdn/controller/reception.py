# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Handling of frames sent up by switches: learning, answering, forwarding, dropping. No clock, no I/O.

The controller sends a frame out at its destination host's port, never into the network: regardless of installed rules
it arrives once and cannot loop. A broadcast leaves only at the other hosts' ports.
"""

from collections import Counter, deque
from collections.abc import Callable
from hashlib import blake2b

from barewire.sdn.classify.classifier import Classification
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.frames import (
    ARP,
    IPV4,
    JUMBO_LLC,
    LENGTH_FRAME,
    LLDP,
    TCP,
    UDP,
    Arp,
    Headers,
    arp_answer,
    arp_request,
    probe,
    read_headers,
    read_probe,
)
from barewire.sdn.controller.full_tables import FullTables
from barewire.sdn.controller.guard import Allowance, Backoff
from barewire.sdn.controller.hosts import Host, Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.router import Router
from barewire.sdn.controller.rules import drop_rule
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import AddRule, PacketIn, PacketOut
from barewire.topology import Port

# Frames buffered until a port is settled; per port and in total.
HELD_PER_PORT_MAX, HELD_MAX = 64, 8192
# Limits on requests for unseen hosts per second: per requested host, and per port. A job's first rank requests all
# others at once.
QUESTIONS_BURST, QUESTIONS_PER_S = 3, 1
ASKING_BURST, ASKING_PER_S = 500, 100
# How long a broadcast is recognised that returns through another port.
ECHO_S = 1.0
ECHOES_MAX = 4096
# How long frames of an unrouted EtherType from a port are dropped by a rule, and the limit of such rules: a port that
# sends every EtherType must not fill its switch's table.
UNROUTED_S = 10
UNROUTED_BURST, UNROUTED_PER_S = 8, 1
_ROUTED = (IPV4, LENGTH_FRAME, JUMBO_LLC)


class Reception:
    """Processes frames, one at a time."""

    def __init__(
        self,
        settings: Settings,
        key: bytes,
        discovery: Discovery,
        hosts: Hosts,
        router: Router,
        full: FullTables,
        outbox: Outbox,
        classification_of: Callable[[FlowKey], Classification],
        refresh: Callable[[float], None],
    ) -> None:
        """`key` authenticates probes; `classification_of` classifies a flow; `refresh` adds a host to the network."""
        self.counts: Counter[str] = Counter()
        self._settings, self._key, self._discovery, self._hosts = settings, key, discovery, hosts
        self._router, self._full, self._outbox, self._classification_of = router, full, outbox, classification_of
        self._refresh = refresh
        self._frames = Allowance(settings.frames_burst, settings.frames_per_s)
        self._broadcasts = Allowance(settings.broadcasts_burst, settings.broadcasts_per_s)
        self._questions = Allowance(QUESTIONS_BURST, QUESTIONS_PER_S)
        self._asking = Allowance(ASKING_BURST, ASKING_PER_S)
        self._unrouted = Allowance(UNROUTED_BURST, UNROUTED_PER_S)
        self._backoff = Backoff()
        self._held: dict[Port, list[bytes]] = {}
        self._held_count = 0
        self._broadcast_of_late: deque[tuple[float, bytes, Port]] = deque(maxlen=ECHOES_MAX)

    def frame(self, switch: str, packet: PacketIn, now: float) -> None:
        """Process a frame."""
        port = Port(switch, packet.in_port)
        if not self._frames.take(port, now):
            self._hold_off(port, now)
            return
        headers = read_headers(packet.frame)
        if headers is None:
            self.counts["malformed"] += 1
        elif headers.eth_type == LLDP:
            self._probe(port, packet.frame, now)
        elif self._discovery.is_between_switches(port):
            self._from_switch_link(port, headers, packet.frame, now)
        elif self._discovery.is_settled(port, now):
            self._from_host(port, headers, packet.frame, now)
        else:
            self._hold(port, packet.frame, now)

    def probes(self, now: float) -> None:
        """Send due probes."""
        for port in self._discovery.due_probes(now):
            self._send_probe(port)

    def age(self, now: float) -> None:
        """Remove expired state."""
        for allowance in (self._frames, self._broadcasts, self._questions, self._asking, self._unrouted):
            allowance.age(now)
        self._backoff.age(now)

    def deliver(self, frame: bytes, host: Host) -> None:
        """Send a frame to a host."""
        if host.port is not None:
            self._outbox.send(host.port.node, PacketOut((host.port.number,), frame))

    def _send_probe(self, port: Port) -> None:
        self._outbox.send(port.node, PacketOut((port.number,), probe(self._key, port.node, port.number)))

    def _probe(self, port: Port, frame: bytes, now: float) -> None:
        found = read_probe(self._key, frame)
        if found is None:
            self.counts["foreign LLDP"] += 1
            return
        if self._discovery.probe_arrived(Port(*found), port, now):
            self._send_probe(port)

    def _hold(self, port: Port, frame: bytes, now: float) -> None:
        held = self._held.setdefault(port, [])
        if len(held) >= HELD_PER_PORT_MAX or self._held_count >= HELD_MAX:
            self.counts["too many before a port was settled"] += 1
            return
        if not held:
            self._outbox.at(now + self._settings.settle_s, lambda later: self._let_go(port, later))
        held.append(frame)
        self._held_count += 1

    def _let_go(self, port: Port, now: float) -> None:
        frames = self._held.pop(port, [])
        self._held_count -= len(frames)
        for frame in frames:
            headers = read_headers(frame)
            if headers is not None and self._discovery.is_settled(port, now):
                take = self._from_switch_link if self._discovery.is_between_switches(port) else self._from_host
                take(port, headers, frame, now)

    def _hold_off(self, port: Port, now: float) -> None:
        self.counts["above its port's allowance"] += 1
        seconds = self._backoff.hold_s(port, now)
        if seconds:
            self._outbox.send(port.node, AddRule(drop_rule(port.number, seconds)))
            self._outbox.emit(
                "flood", f"{port} sent up more than {self._settings.frames_per_s}/s: held off for {seconds} s"
            )

    def _from_host(self, port: Port, headers: Headers, frame: bytes, now: float) -> None:
        version = self._hosts.version
        host = self._hosts.learn(headers.source, port, now)
        if host is None:
            self.counts["from a host at another port, or above the limit of hosts"] += 1
            return
        if self._hosts.version != version:
            self._attached(host, port)
            self._refresh(now)
        if headers.eth_type == ARP:
            self._arp(host, headers, frame, now)
            return
        if headers.ip_source:
            self._hosts.learn_address(host, headers.ip_source)
        if headers.is_group:
            self._broadcast(host, frame, now)
        elif headers.eth_type not in _ROUTED:
            self._refuse(port, headers, now)
        else:
            self._unicast(host, headers, frame, now)

    def _from_switch_link(self, port: Port, headers: Headers, frame: bytes, now: float) -> None:
        """Deliver a frame that came up inside the network, and reinstall its flow's rules."""
        host = self._hosts.by_mac.get(headers.source)
        if headers.is_group or headers.eth_type not in _ROUTED or host is None:
            self.counts["without a rule inside the network"] += 1
            return
        self._unicast(host, headers, frame, now)

    def _attached(self, host: Host, port: Port) -> None:
        """Handle a host at a new port: flows routed to its old port are placed again."""
        elsewhere = [
            route
            for route in self._router.routes
            if (route.key.destination == host.name and route.path[-1] != port)
            or (route.key.source == host.name and route.path[0].node != port.node)
        ]
        for route in elsewhere:
            self._router.remove(route)
        self._outbox.emit("host", f"{host.name} is at {port}; {len(elsewhere)} of its flows are placed again")

    def _arp(self, host: Host, headers: Headers, frame: bytes, now: float) -> None:
        packet = headers.arp
        if packet is None or packet.sender_mac != host.mac:
            self.counts["malformed"] += 1
            return
        if packet.sender != "0.0.0.0" and not self._hosts.learn_address(host, packet.sender):
            self.counts["an address that is another's"] += 1
            return
        if not packet.is_request:
            asker = self._hosts.by_mac.get(headers.destination)
            if asker is not None:
                self.deliver(frame, asker)
            return
        if packet.target == packet.sender:
            return  # a gratuitous announcement
        owner = self._hosts.with_address(packet.target)
        if owner is not None and owner.port is not None:
            self.deliver(arp_answer(packet, owner.mac), host)
        elif self._may_ask(host, packet.target, now):
            # A host from a file without a known port is also requested: its reply reveals the port.
            self.counts["addresses asked for"] += 1
            self._to_edges(arp_request(packet), host, now)

    def _may_ask(self, host: Host, target: str, now: float) -> bool:
        return self._questions.take((host.name, target), now) and self._asking.take(host.port, now)

    def _broadcast(self, host: Host, frame: bytes, now: float) -> None:
        if not self._broadcasts.take(host.port, now):
            self.counts["broadcasts above the allowance"] += 1
            return
        assert host.port is not None
        digest = blake2b(frame, digest_size=16).digest()
        late = self._broadcast_of_late
        while late and late[0][0] < now - ECHO_S:
            late.popleft()
        if any(late_digest == digest and port != host.port for _, late_digest, port in late):
            self.counts["broadcasts that returned"] += 1
            return
        late.append((now, digest, host.port))
        self._to_edges(frame, host, now)

    def _to_edges(self, frame: bytes, host: Host, now: float) -> None:
        """Send a frame to all edge ports except the host's."""
        out: dict[str, list[int]] = {}
        for port in self._discovery.edge_ports(now):
            if port != host.port:
                out.setdefault(port.node, []).append(port.number)
        for switch, numbers in out.items():
            self._outbox.send(switch, PacketOut(tuple(numbers), frame))

    def _refuse(self, port: Port, headers: Headers, now: float) -> None:
        self.counts["of EtherTypes that are not routed"] += 1
        if self._unrouted.take(port, now):
            self._outbox.send(port.node, AddRule(drop_rule(port.number, UNROUTED_S, headers.eth_type)))

    def _unicast(self, source: Host, headers: Headers, frame: bytes, now: float) -> None:
        destination = self._hosts.by_mac.get(headers.destination)
        if destination is None or destination.port is None:
            if self._may_ask(source, headers.destination, now):
                self._flood_for_unknown(source, headers, frame, now)
            return
        if destination.port == source.port:
            return  # both are on the same port
        self.deliver(frame, destination)
        key = flow_key(source.name, destination.name, headers)
        route = self._router.routes.get(key)
        if route is not None:
            route.seen_s = now
            if route.installed_s is not None and now > route.installed_s + self._settings.reinstall_after_s:
                self.counts["flows laid again"] += 1
                self._router.reinstall(route)
        elif source.port is not None and not self._full.is_forwarding(key, now):
            placed = self._router.place(key, self._classification_of(key), headers.identification, now)
            self.counts["without a path"] += placed is None

    def _flood_for_unknown(self, source: Host, headers: Headers, frame: bytes, now: float) -> None:
        """Flood a frame whose destination's port is unknown; other interfaces ignore it, and a reply reveals the port.

        For IP an ARP request is sent as well, because not all frames are answered.
        """
        self.counts["hosts asked for"] += 1
        self._to_edges(frame, source, now)
        if headers.ip_source:
            request = Arp(True, source.mac, headers.ip_source, "00:00:00:00:00:00", headers.ip_destination)
            self._to_edges(arp_request(request), source, now)


def flow_key(source: str, destination: str, headers: Headers) -> FlowKey:
    """Return the flow of a frame between two hosts."""
    if headers.eth_type != IPV4:
        return FlowKey(source, destination, "llc")
    if headers.ip_proto not in (TCP, UDP):
        return FlowKey(source, destination, "ip")
    protocol = "tcp" if headers.ip_proto == TCP else "udp"
    return FlowKey(source, destination, protocol, headers.source_port, headers.destination_port)
