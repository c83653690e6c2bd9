# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An in-memory network of switches that executes the controller's messages and traces packets.

Messages are queued at each switch until the test lets it execute one; between two barriers a switch may execute them in
any order, as OpenFlow allows. So a test can inspect the network after every single message.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv6Address

from barewire.sdn.classify.policy import Policy
from barewire.sdn.classify.tenants import Tenants
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.frames import LLDP, read_headers
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.rules import Kind, kind_of
from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.messages import (
    ADVERTISEMENT,
    CONTROLLER,
    ICMPV6,
    IPV4,
    IPV6,
    SOLICITATION,
    TCP,
    UNTAGGED,
    AddRule,
    BarrierReply,
    BarrierRequest,
    DeleteRule,
    FromSwitch,
    Match,
    MeterCounter,
    MeterCounters,
    PacketIn,
    PacketOut,
    PortCounter,
    PortCounters,
    PortList,
    PortState,
    PortStatus,
    Request,
    RequestKind,
    Rule,
    RuleCounter,
    RuleCounters,
    RuleList,
    RuleRemoved,
    SetMeter,
    SwitchDown,
    SwitchError,
    SwitchUp,
    ToSwitch,
    Why,
)
from barewire.topology import Network, Port, fat_tree

# More hops than any loop-free path of the tests has.
HOPS_MAX = 64
SETTLED_S = 0.5


def mac(host: str) -> str:
    """h1 is 02:ba:7e:00:00:01."""
    return f"02:ba:7e:00:00:{int(host[1:]):02x}"


def address(host: str) -> str:
    return f"10.77.0.{int(host[1:])}"


def ethernet(source: str, destination: str, eth_type: int, payload: bytes) -> bytes:
    to = bytes.fromhex((mac(destination) if ":" not in destination else destination).replace(":", ""))
    return to + bytes.fromhex(mac(source).replace(":", "")) + eth_type.to_bytes(2, "big") + payload


def tcp(
    source: str, destination: str, source_port: int = 1000, destination_port: int = 2000, identification: int = 0
) -> bytes:
    """A TCP packet up to its ports."""
    ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    ends = b"".join(bytes(map(int, address(host).split("."))) for host in (source, destination))
    head = b"\x45\0\0\x28" + identification.to_bytes(2, "big") + b"\0\0\x40" + bytes([TCP]) + b"\0\0"
    return ethernet(source, destination, IPV4, head + ends + ports + bytes(16))


def address6(host: str, interface: int = 0) -> str:
    """A global address of a host; the last three bytes are those of others' addresses in other networks."""
    return f"fd00:77:{interface:x}::{int(host[1:]):x}" if interface else f"fd00:77::{int(host[1:]):x}"


def ipv6(
    source: str, destination: str, protocol: int, payload: bytes, sender: str = "", to: str = "", hops: int = 64
) -> bytes:
    """A packet of IPv6, to a host or a group."""
    ends = [IPv6Address(sender or address6(source)), IPv6Address(to or address6(destination))]
    head = b"\x60\0\0\0" + len(payload).to_bytes(2, "big") + bytes([protocol, hops])
    return ethernet(source, destination, IPV6, head + b"".join(end.packed for end in ends) + payload)


def tcp6(source: str, destination: str, source_port: int = 1000, destination_port: int = 2000) -> bytes:
    """A TCP packet over IPv6 up to its ports."""
    ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return ipv6(source, destination, TCP, ports + bytes(16))


def solicitation(host: str, target: str, sender: str | None = None, mac_of: str = "") -> bytes:
    """A host asks for the owner of an IPv6 address; from no address (`sender` "::") to find out whether it is free."""
    last = IPv6Address(target).packed[-3:]
    group = f"ff02::1:ff{last[0]:02x}:{last[1]:02x}{last[2]:02x}"
    option = b"" if sender == "::" else b"\1\1" + bytes.fromhex(mac(mac_of or host).replace(":", ""))
    said = bytes([SOLICITATION, 0, 0, 0]) + bytes(4) + IPv6Address(target).packed + option
    return ipv6(host, f"33:33:ff:{last.hex(':')}", ICMPV6, said, sender or address6(host), group, 255)


def advertisement(host: str, to: str, target: str | None = None, hops: int = 255) -> bytes:
    """A host's answer, to a host or to the group of all: the address is its own."""
    option = b"\2\1" + bytes.fromhex(mac(host).replace(":", ""))
    said = bytes([ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0]) + IPv6Address(target or address6(host)).packed + option
    return ipv6(host, to, ICMPV6, said, target or address6(host), "ff02::1" if ":" in to else "", hops)


def tagged(frame: bytes, vlan: int) -> bytes:
    """The frame with a tag of a VLAN, and a priority."""
    return frame[:12] + b"\x81\x00" + (0x6000 | vlan).to_bytes(2, "big") + frame[12:]


def llc(source: str, destination: str, is_jumbo: bool = False) -> bytes:
    """An LLC frame: with a length, or under EtherType 0x8870."""
    return ethernet(source, destination, 0x8870 if is_jumbo else 46, b"\x04\x04\x03" + bytes(43))


def labelled(frame: bytes, label: int) -> bytes:
    """The frame with the tag of a label."""
    return frame[:12] + b"\x81\x00" + (0xF00 + label).to_bytes(2, "big") + frame[12:]


@dataclass
class Entry:
    """A rule in a table, with its counters."""

    rule: Rule
    since_s: float
    used_s: float
    packets: int = 0
    bytes: int = 0


@dataclass
class FakeSwitch:
    """A switch: a table, ports, and pending messages."""

    name: str
    ports: dict[int, bool]
    # Of tables 0 and 1.
    capacity: int = 1 << 20
    default_capacity: int = 1 << 20
    table: dict[tuple[Match, int], Entry] = field(default_factory=dict)
    default: dict[tuple[Match, int], Entry] = field(default_factory=dict)
    inbox: list[ToSwitch] = field(default_factory=list)
    is_connected: bool = False
    sent: dict[int, int] = field(default_factory=dict)
    # By number: rate in kbit/s, bytes that came since the rate was set, and when the meter was added.
    meters: dict[int, list[float]] = field(default_factory=dict)
    # Accepted changes of meters.
    meter_mods: list[SetMeter] = field(default_factory=list)
    has_meters: bool = True

    def rules(self, table: int) -> dict[tuple[Match, int], Entry]:
        """A table's entries by match and priority."""
        return self.default if table else self.table

    def best(self, frame: bytes, in_port: int, table: int = 0) -> Entry | None:
        """The matching rule with the highest priority."""
        found: Entry | None = None
        for (match, priority), entry in self.rules(table).items():
            if (found is None or priority > found.rule.priority) and matches(match, frame, in_port):
                found = entry
        return found

    def actions(self, frame: bytes, in_port: int) -> list[Entry]:
        """The rules that apply to a frame, one for each table."""
        found = [self.best(frame, in_port)]
        if found[0] is not None and found[0].rule.goto:
            found.append(self.best(frame, in_port, found[0].rule.goto))
        return [entry for entry in found if entry is not None]


# Each is asked for thousands of times: all rules of a table for a frame, and a frame at each of its switches.
@lru_cache(maxsize=1 << 14)
def _found(frame: bytes) -> tuple[object, ...]:
    """What a frame has of what a match may ask for, in the order of `_wanted`, without its port."""
    headers = read_headers(frame)
    assert headers is not None
    return (
        headers.source,
        headers.destination,
        headers.eth_type,
        headers.ip_proto,
        headers.source_port,
        headers.destination_port,
        headers.arp.target if headers.arp is not None and headers.arp.is_request else None,
        headers.icmp6_type,
        None if headers.neighbour is None else headers.neighbour.target,
    )


@lru_cache(maxsize=1 << 14)
def _wanted(match: Match) -> tuple[tuple[int, object], ...]:
    """What a match asks for, by its place in `_found`."""
    fields = (
        match.eth_src,
        match.eth_dst,
        match.eth_type,
        match.ip_proto,
        match.source_port,
        match.destination_port,
        match.arp_target,
        match.icmp6_type,
        match.nd_target,
    )
    return tuple((at, wanted) for at, wanted in enumerate(fields) if wanted is not None)


def matches(match: Match, frame: bytes, in_port: int) -> bool:
    if match.in_port is not None and match.in_port != in_port:
        return False
    if match.vlan == UNTAGGED:
        if frame[12:14] == b"\x81\x00":
            return False
    elif match.vlan is not None:
        mask = 0xFFF if match.vlan_mask is None else match.vlan_mask
        if frame[12:14] != b"\x81\x00" or (int.from_bytes(frame[14:16], "big") ^ match.vlan) & mask:
            return False
    found = _found(frame)
    for at, wanted in _wanted(match):  # noqa: SIM110, a generator takes twice as long
        if wanted != found[at]:
            return False
    return True


class World:
    """Switches, links between them, hosts that count received frames, and a controller."""

    def __init__(
        self,
        network: Network,
        settings: Settings | None = None,
        policy: Policy | None = None,
        seed: int = 1,
        addresses: Mapping[str, str] | None = None,
        tenants: Tenants | None = None,
    ) -> None:
        self.tenants = tenants
        self.unknown_meters = 0
        self.network = network
        self.random = random.Random(seed)
        self.now = 100.0
        self.settings = settings or Settings()
        self.policy = policy or Policy({"default": "stp"}, ())
        self.addresses = addresses or {}
        self.cut: set[Port] = set()
        # How late the controller handles what switches say, as on a busy machine.
        self.late_s = 0.0
        self.delivered: list[tuple[str, bytes]] = []
        self.lost: list[tuple[Port, bytes]] = []
        self.to_controller = 0
        self.events: list[Event] = []
        self.switches = {
            name: FakeSwitch(name, {port.number: True for port in network.ports[name]}) for name in network.switches
        }
        # When the controller handles it, who said it, and what.
        self._said: deque[tuple[float, str, FromSwitch]] = deque()
        self.start_controller()

    def start_controller(self) -> None:
        """A new controller with the hosts' names and the addresses of a file."""
        hosts = Hosts({host: mac(host) for host in self.network.hosts}, self.addresses)
        self.controller = Controller(
            self.settings, self.policy, hosts, b"key", self.random.getrandbits(31), self.tenants
        )

    def connect(self, *names: str) -> None:
        """Connect switches; by default all."""
        for name in names or self.switches:
            switch = self.switches[name]
            switch.is_connected = True
            switch.inbox.clear()
            self._said.append((self.now, name, SwitchUp(int(name[1:]))))

    def disconnect(self, *names: str, tell: bool = True) -> None:
        """Disconnect switches from the controller; they continue to forward."""
        for name in names or self.switches:
            self.switches[name].is_connected = False
            self.switches[name].inbox.clear()
            if tell:
                self._said.append((self.now, name, SwitchDown("test")))

    def restart_switch(self, name: str) -> None:
        """Restart a switch: without rules, and connected again."""
        self.disconnect(name)
        self.switches[name].table.clear()
        self.switches[name].meters.clear()
        self.switches[name].default.clear()
        self.connect(name)

    def stand_up(self) -> None:
        """Connect all switches, find all links and settle all ports."""
        self.connect()
        self.settle()
        self.pass_time(SETTLED_S)
        between = {port for port, peer in self.network.peers.items() if {port.node, peer.node} <= self.switches.keys()}
        assert set(self.controller.discovery.peers) == between

    # Single steps

    def steps(self) -> Iterator[None]:
        """Let switches execute and the controller receive single messages in random order, until none is left."""
        while True:
            self.turn()
            choices: list[FakeSwitch | None] = [None] if self._said and self._said[0][0] <= self.now else []
            choices += [switch for switch in self.switches.values() if switch.inbox]
            if not choices:
                return
            if (switch := self.random.choice(choices)) is None:
                self._hear()
            else:
                self._do_one(switch)
            yield

    def settle(self) -> None:
        """Do all that is to be done now."""
        for _ in self.steps():
            pass
        routes = self.controller.router.routes
        assert set(routes.first_switches()) == {route.path[0].node for route in routes}

    def pass_time(self, seconds: float, tick_s: float = 0.05) -> None:
        """Let time pass; rules that are due end."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + tick_s, end)
            self._expire()
            self.settle()

    def turn(self) -> None:
        """The controller does what is due."""
        for name, messages in self.controller.poll(self.now).items():
            if self.switches[name].is_connected:
                self.switches[name].inbox += messages
        self.events += self.controller.take_events()

    def _hear(self) -> None:
        _, name, event = self._said.popleft()
        if self.switches[name].is_connected or isinstance(event, SwitchDown):
            self.controller.handle(name, event, self.now)

    def _say(self, switch: FakeSwitch, event: FromSwitch) -> None:
        if switch.is_connected:
            self._said.append((self.now + self.late_s, switch.name, event))

    def _do_one(self, switch: FakeSwitch) -> None:
        until = next(
            (at for at, message in enumerate(switch.inbox) if isinstance(message, BarrierRequest)), len(switch.inbox)
        )
        # Rules with the same match are not reordered in any switch we know; elsewhere that would break ADD itself.
        self._do(
            switch, switch.inbox.pop(self.random.randrange(until) if until and self._may_swap(switch, until) else 0)
        )

    def _may_swap(self, switch: FakeSwitch, until: int) -> bool:
        places = [
            _place(message)
            for message in switch.inbox[:until]
            if not isinstance(message, PacketOut | Request | SetMeter)
        ]
        return len(places) == len(set(places))

    def _do(self, switch: FakeSwitch, message: ToSwitch) -> None:
        match message:
            case AddRule(rule):
                self._set(switch, message, rule)
            case DeleteRule(match, priority, cookie, mask, table):
                entry = switch.rules(table).get((match, priority))
                if entry is not None and (entry.rule.cookie ^ cookie) & mask == 0:
                    del switch.rules(table)[match, priority]
                    if entry.rule.notify:
                        self._say(switch, RuleRemoved(entry.rule.cookie, Why.DELETED))
            case PacketOut(out, frame):
                for port in out:
                    self._leave(Port(switch.name, port), frame, HOPS_MAX)
            case SetMeter(number, rate_kbit_s, _, is_new):
                code = 10 if not switch.has_meters else (1, 3)[not is_new] if (number in switch.meters) is is_new else 0
                if code:
                    self._say(switch, SwitchError(12, code, f"meter mod failed, code {code}", message))
                else:
                    added_s = self.now if is_new else switch.meters[number][2]
                    switch.meters[number] = [rate_kbit_s, 0, added_s]
                    switch.meter_mods.append(message)
            case BarrierRequest(token):
                self._say(switch, BarrierReply(token))
            case Request():
                self._answer(switch, message)

    def _set(self, switch: FakeSwitch, message: AddRule, rule: Rule) -> None:
        place, table = (rule.match, rule.priority), switch.rules(rule.table)
        before = table.get(place)
        if rule.meter is not None and rule.meter not in switch.meters:
            self._say(switch, SwitchError(12, 3, "meter mod failed, code 3: unknown meter", message))
            self.unknown_meters += 1
            return
        if before is None and len(table) >= (switch.default_capacity if rule.table else switch.capacity):
            self._say(switch, SwitchError(5, 1, "table full", message, is_table_full=True))
            return
        table[place] = Entry(rule, self.now, self.now)
        if before is not None:
            table[place].packets, table[place].bytes = before.packets, before.bytes

    def _answer(self, switch: FakeSwitch, asked: Request) -> None:
        entries = [
            entry
            for entry in (*switch.table.values(), *switch.default.values())
            if entry.rule.cookie & asked.cookie_mask == asked.cookie & asked.cookie_mask
        ]
        counters = tuple(
            RuleCounter(entry.rule.cookie, entry.packets, entry.bytes, self.now - entry.since_s) for entry in entries
        )
        match asked.question:
            case RequestKind.PORTS:
                self._say(
                    switch, PortList(tuple(PortState(number, f"p{number}", up) for number, up in switch.ports.items()))
                )
            case RequestKind.PORT_COUNTERS:
                self._say(switch, PortCounters(tuple(PortCounter(n, switch.sent.get(n, 0), 0) for n in switch.ports)))
            case RequestKind.RULES:
                self._say(switch, RuleList(tuple(entry.rule for entry in entries), counters))
            case RequestKind.METER_COUNTERS:
                found = [MeterCounter(n, int(came), self.now - since) for n, (_, came, since) in switch.meters.items()]
                self._say(switch, MeterCounters(tuple(found)))
            case RequestKind.RULE_COUNTERS:
                self._say(switch, RuleCounters(counters))

    # Packets

    def send(self, host: str, frame: bytes) -> None:
        """A host sends a frame."""
        port = self.network.attachment(host)
        assert port is not None
        self.arrive(port, frame, HOPS_MAX)

    def arrive(self, port: Port, frame: bytes, hops: int) -> None:
        switch = self.switches[port.node]
        assert hops, f"a frame goes round for ever at {port}"
        entries = switch.actions(frame, port.number)
        if not any(entry.rule.out for entry in entries):
            self.lost.append((port, frame))
        for entry in entries:
            entry.used_s = self.now
            if entry.rule.meter is not None:
                switch.meters[entry.rule.meter][1] += len(frame)
            entry.packets, entry.bytes = entry.packets + 1, entry.bytes + len(frame)
            sent = frame if entry.rule.set_eth_dst is None else with_destination(frame, entry.rule.set_eth_dst)
            if entry.rule.pops_vlan:
                sent = sent[:12] + sent[16:]
            for out in entry.rule.out:
                if out == CONTROLLER:
                    self.to_controller += 1
                    self._say(switch, PacketIn(port.number, frame))
                elif out != port.number:
                    self._leave(Port(port.node, out), sent, hops - 1)

    def _leave(self, port: Port, frame: bytes, hops: int) -> None:
        switch = self.switches[port.node]
        switch.sent[port.number] = switch.sent.get(port.number, 0) + len(frame)
        peer = self.network.peers.get(port)
        if peer is None or port in self.cut or not switch.ports.get(port.number):
            self.lost.append((port, frame))
        elif peer.node in self.switches:
            self.arrive(peer, frame, hops)
        elif frame[12:14] != LLDP.to_bytes(2, "big"):  # no host listens to it
            self.delivered.append((peer.node, frame))

    def where(self, host: str, frame: bytes) -> str:
        """Say where a frame that a host would send ends: a host's name, `flooded at s1`, `lost at s1:2`, `loop`."""
        port = self.network.attachment(host)
        for _ in range(HOPS_MAX):
            assert port is not None
            entries = self.switches[port.node].actions(frame, port.number)
            if not entries or not entries[-1].rule.out:
                return f"lost at {port.node}"
            if entries[-1].rule.match == Match():
                return f"flooded at {port.node}"
            (out,) = entries[-1].rule.out
            leaves = Port(port.node, out)
            if leaves in self.cut:
                return f"lost at {leaves}"
            port = self.network.peers[leaves]
            if port.node not in self.switches:
                return port.node
        return "loop"

    def is_placed(self, host: str, frame: bytes) -> bool:
        """Whether a frame has a flow's rule at its first switch."""
        port = self.network.attachment(host)
        assert port is not None
        entry = self.switches[port.node].best(frame, port.number)
        return entry is not None and kind_of(entry.rule.cookie) is Kind.FLOW

    def received(self, host: str, frame: bytes) -> int:
        """How often a host got a frame."""
        return self.delivered.count((host, frame))

    # Faults

    def set_link(self, port: Port, is_up: bool) -> None:
        """Pull a link at both ends, or plug it in."""
        for end in (port, self.network.peers[port]):
            (self.cut.discard if is_up else self.cut.add)(end)
            if end.node in self.switches:
                self.switches[end.node].ports[end.number] = is_up
                self._say(self.switches[end.node], PortStatus(PortState(end.number, f"p{end.number}", is_up)))

    def _expire(self) -> None:
        for switch in self.switches.values():
            for place, entry in list(switch.table.items()):  # those of table 1 never end
                if not entry.rule.idle_s and not entry.rule.hard_s:
                    continue
                idle = entry.rule.idle_s and self.now >= entry.used_s + entry.rule.idle_s
                hard = entry.rule.hard_s and self.now >= entry.since_s + entry.rule.hard_s
                if idle or hard:
                    del switch.table[place]
                    if entry.rule.notify:
                        why = Why.IDLE if idle else Why.HARD
                        self._say(switch, RuleRemoved(entry.rule.cookie, why, entry.packets, entry.bytes))


def with_destination(frame: bytes, address: str) -> bytes:
    """A frame with another destination address."""
    return bytes.fromhex(address.replace(":", "")) + frame[6:]


def _place(message: ToSwitch) -> object:
    if isinstance(message, AddRule):
        return message.rule.table, message.rule.match, message.rule.priority
    assert isinstance(message, DeleteRule)
    return message.table, message.match, message.priority


def quiet(settings: Settings | None = None, **changes: float) -> Settings:
    """Settings without time-outs, for tests that look at rules for longer than those last."""
    return replace(settings or Settings(), **{"idle_s": 0, "hard_s": 0, **changes})  # type: ignore[arg-type]


def acquainted(
    seed: int = 1, addresses: Mapping[str, str] | None = None, tenants: Tenants | None = None, **settings: float
) -> World:
    """A fat-tree with all hosts learnt."""
    world = World(fat_tree(4, servers=0), quiet(None, **settings), seed=seed, addresses=addresses, tenants=tenants)
    world.stand_up()
    for host in world.network.hosts:
        world.send(host, tcp(host, "h1" if host != "h1" else "h2", 1, 1))
    world.settle()
    world.delivered.clear()  # those were flooded
    return world
