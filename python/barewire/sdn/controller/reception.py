# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Handling of frames sent up by switches: probes, learning hosts, placing flows, stopping floods. No clock, no I/O.

Frames of hosts are copies: the switches have forwarded them by their default rules. The controller sends none of them.
"""

from collections import Counter
from collections.abc import Callable

from barewire.sdn.classify.classifier import Classification
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.frames import (
    DISCOVERY,
    JUMBO_LLC,
    LENGTH_FRAME,
    LLDP,
    Headers,
    probe,
    read_headers,
    read_probe,
)
from barewire.sdn.controller.full_tables import FullTables
from barewire.sdn.controller.guard import Allowance, Backoff
from barewire.sdn.controller.hosts import Address, Host, Hosts
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.router import Router
from barewire.sdn.controller.rules import LABELS, drop_probes_rule, drop_rule, quiet_flow_rules, quiet_rule
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import ARP, ICMPV6, IPV4, IPV6, TCP, UDP, AddRule, PacketIn, PacketOut, Rule
from barewire.topology import Port

# How long a port's frames are dropped that come from a host at another port: they return through a loop outside of the
# network, or are forged; and its ARP or ICMPv6, if it claims another host's address.
ELSEWHERE_S, FORGED_S = 1, 10
# How long no copies are sent up of an EtherType without flows, or of a flow without a path; and the limit of rules for
# EtherTypes and addresses: a port that sends or forges all of them must not fill its switch's table.
UNROUTED_S = 10
LIMITED_BURST, LIMITED_PER_S = 8, 1
# With tenants, frames without flows that a port may send a second, as protocols for time or access need: they pass by
# all meters.
UNMETERED_PER_S = 100
_ROUTED = (IPV4, IPV6, LENGTH_FRAME, JUMBO_LLC)


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
        is_current: Callable[[], bool],
        *,
        has_tenants: bool = False,
    ) -> None:
        """`key` authenticates probes; `classification_of` classifies a flow.

        `is_current` tells whether the router's network has all hosts and links; otherwise flows wait for
        `place_waiting`.
        """
        self.counts: Counter[str] = Counter()
        self._settings, self._key, self._discovery, self._hosts = settings, key, discovery, hosts
        self._router, self._full, self._outbox, self._classification_of = router, full, outbox, classification_of
        self._is_current = is_current
        # New flows that wait for the current network, with the identifications of their first packets.
        self._waiting: dict[FlowKey, int] = {}
        self._frames = Allowance(settings.frames_burst, settings.frames_per_s)
        self._limited = Allowance(LIMITED_BURST, LIMITED_PER_S)
        self._unmetered = Allowance(UNMETERED_PER_S, UNMETERED_PER_S) if has_tenants else None
        self._backoff = Backoff()

    def frame(self, switch: str, packet: PacketIn, now: float) -> None:
        """Process a frame."""
        port = Port(switch, packet.in_port)
        if not self._frames.take(port, now):
            self._hold_off(port, packet.frame, now)
            return
        headers = read_headers(packet.frame)
        if headers is None:
            self.counts["malformed"] += 1
        elif headers.eth_type == LLDP:
            self._probe(port, packet.frame, now)
        elif self._discovery.is_between_switches(port):
            self.counts["copies from inside the network"] += 1
        elif self._discovery.is_settled(port, now):
            self._from_host(port, headers, now)
        else:
            self.counts["from ports that are not settled"] += 1

    def place_waiting(self, now: float) -> None:
        """Place the flows that came since hosts or links were found, by the network that has these."""
        while self._waiting:
            key = next(iter(self._waiting))
            identification = self._waiting.pop(key)
            ends = [self._hosts.by_name.get(name) for name in (key.source, key.destination)]
            # A host that was detached meanwhile is found by a later frame, of which copies are needed.
            are_there = all(host is not None and host.port is not None for host in ends)
            if are_there and self._router.routes.get(key) is None:
                self._place(key, identification, now)

    def probes(self, now: float) -> None:
        """Send due probes."""
        for port in self._discovery.due_probes(now):
            self._send_probe(port)

    def age(self, now: float) -> None:
        """Remove expired state."""
        self._frames.age(now)
        self._limited.age(now)
        if self._unmetered is not None:
            self._unmetered.age(now)
        self._backoff.age(now)

    def _send_probe(self, port: Port) -> None:
        self._outbox.send(port.node, PacketOut((port.number,), probe(self._key, port.node, port.number)))

    def _probe(self, port: Port, frame: bytes, now: float) -> None:
        found = read_probe(self._key, frame)
        if found is None:
            self.counts["foreign LLDP"] += 1
            return
        if self._discovery.probe_arrived(Port(*found), port, now):
            self._send_probe(port)

    def _hold_off(self, port: Port, frame: bytes, now: float) -> None:
        self.counts["above its port's allowance"] += 1
        seconds = self._backoff.hold_s(port, now)
        if not seconds:
            return
        self._outbox.send(port.node, AddRule(drop_rule(port.number, seconds)))
        headers = read_headers(frame)
        # A port that floods with other frames may have a link that was not found yet.
        if headers is not None and headers.eth_type == LLDP and port not in self._discovery.peers:
            self._outbox.send(port.node, AddRule(drop_probes_rule(port.number, seconds)))
        self._outbox.emit(
            "flood", f"{port} sent up more than {self._settings.frames_per_s}/s: held off for {seconds} s"
        )

    def _from_host(self, port: Port, headers: Headers, now: float) -> None:
        known = self._hosts.by_mac.get(headers.source)
        version = self._hosts.version
        host = self._hosts.learn(headers.source, port, now)
        if host is None:
            self.counts["from a host at another port, or above the limit of hosts"] += 1
            if known is not None and known.port is not None:
                self._limit(port, drop_rule(port.number, ELSEWHERE_S, eth_src=known.mac), now)
            return
        if self._hosts.version != version:
            self._attached(host, port, is_new=known is None)
        if headers.eth_type == ARP:
            self._arp(host, port, headers, now)
            return
        if headers.neighbour is not None:
            self._neighbour(host, port, headers, now)
        elif headers.eth_type == IPV4:
            self._hosts.learn_address(host, _address(headers, headers.ip_source), now, is_named=False)
        if headers.eth_type not in _ROUTED:
            self.counts["of EtherTypes that only take the default path"] += 1
            if self._unmetered is None:
                self._limit(port, quiet_rule(port.number, UNROUTED_S, headers.eth_type), now)
            elif not self._unmetered.take(port, now):
                self._limit(port, drop_rule(port.number, UNROUTED_S, headers.eth_type), now)
        elif not headers.is_group and headers.icmp6_type not in DISCOVERY:
            self._unicast(host, headers, now)

    def _limit(self, port: Port, rule: Rule, now: float) -> None:
        if self._limited.take(port, now):
            self._outbox.send(port.node, AddRule(rule))

    def _attached(self, host: Host, port: Port, is_new: bool) -> None:
        """Handle a host at a new port: flows routed to its old port are placed again."""
        elsewhere = [
            route
            for route in (() if is_new else self._router.routes)
            if (route.key.destination == host.name and route.path[-1] != port)
            or (route.key.source == host.name and route.path[0].node != port.node)
        ]
        for route in elsewhere:
            self._router.remove(route)
        self._outbox.emit("host", f"{host.name} is at {port}; {len(elsewhere)} of its flows are placed again")

    def _arp(self, host: Host, port: Port, headers: Headers, now: float) -> None:
        packet = headers.arp
        if packet is None or packet.sender_mac != host.mac:
            self.counts["malformed"] += 1
        elif not self._hosts.learn_address(host, _address(headers, packet.sender), now):
            self.counts["an address that is another's"] += 1
            self._limit(port, drop_rule(port.number, FORGED_S, ARP), now)

    def _neighbour(self, host: Host, port: Port, headers: Headers, now: float) -> None:
        """Learn the address of who asks, or the one that is advertised. Routed packets of IPv6 tell none."""
        packet = headers.neighbour
        assert packet is not None
        claimed = headers.ip_source if packet.is_solicitation else packet.target
        if packet.mac not in ("", host.mac):
            self.counts["malformed"] += 1
        elif not self._hosts.learn_address(host, _address(headers, claimed), now):
            self.counts["an address that is another's"] += 1
            self._limit(port, drop_rule(port.number, FORGED_S, IPV6, ip_proto=ICMPV6), now)

    def _unicast(self, source: Host, headers: Headers, now: float) -> None:
        destination = self._hosts.by_mac.get(headers.destination)
        if destination is None or destination.port is None:
            self.counts["to hosts that have not been seen"] += 1
            return  # it is flooded, and the answer reveals the port
        if destination.port == source.port:
            return  # both are on the same port
        key = flow_key(source.name, destination.name, headers)
        route = self._router.routes.get(key)
        if route is not None:
            route.seen_s = now
            if route.installed_s is not None and now > route.installed_s + self._settings.reinstall_after_s:
                self.counts["flows reinstalled"] += 1
                self._router.reinstall(route)
        elif not self._full.stays_on_default_path(key, now):
            if self._is_current():
                self._place(key, headers.identification, now)
            else:
                self._waiting.setdefault(key, headers.identification)

    def _place(self, key: FlowKey, identification: int, now: float) -> None:
        placed = self._router.place(key, self._classification_of(key), identification, now)
        port = self._hosts.by_name[key.source].port
        if placed is None and port is not None:
            self.counts["without a path"] += 1
            self._quiet(key, port)

    def _quiet(self, key: FlowKey, port: Port) -> None:
        """Get no copies for a while of a flow that cannot be placed: its port would be held off for them."""
        if self._unmetered is None:  # otherwise it would pass by all meters
            for rule in quiet_flow_rules(key, self._hosts, UNROUTED_S):
                self._outbox.send(port.node, AddRule(rule))


def _address(headers: Headers, ip: str) -> Address:
    """Return an address in the VLAN of a frame; labels are none."""
    return Address(0 if headers.vlan in LABELS else headers.vlan, ip)


def flow_key(source: str, destination: str, headers: Headers) -> FlowKey:
    """Return the flow of a frame between two hosts."""
    if headers.eth_type not in (IPV4, IPV6):
        return FlowKey(source, destination, "llc")
    version = "6" if headers.eth_type == IPV6 else ""
    if headers.ip_proto not in (TCP, UDP):
        return FlowKey(source, destination, f"ip{version}")
    protocol = "tcp" if headers.ip_proto == TCP else "udp"
    return FlowKey(source, destination, protocol + version, headers.source_port, headers.destination_port)
