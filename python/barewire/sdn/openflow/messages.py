# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Messages between controller and switch as values, independent of their encoding."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

# OFPP_CONTROLLER of OpenFlow 1.3: output to the controller, or a frame not received by a port.
CONTROLLER = 0xFFFF_FFFD
# VLAN of packets without a tag.
UNTAGGED = -1
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
TCP, UDP, ICMPV6 = 6, 17, 58
SOLICITATION, ADVERTISEMENT = 135, 136


@dataclass(frozen=True, slots=True)
class Match:
    """The packets of a rule; None matches anything. Ports are TCP's or UDP's, by `ip_proto`.

    `eth_type` is that behind a tag, if there is one. `vlan` is the VLAN identifier of a tagged packet, compared under
    `vlan_mask` (None: all of it), or UNTAGGED. `arp_target` is the requested address of ARP requests, `nd_target` that
    of neighbour solicitations. ValueError unless all that a field requires is matched, too, because a switch refuses
    such a match.
    """

    in_port: int | None = None
    eth_src: str | None = None
    eth_dst: str | None = None
    eth_type: int | None = None
    ip_proto: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
    arp_target: str | None = None
    vlan: int | None = None
    vlan_mask: int | None = None
    icmp6_type: int | None = None
    nd_target: str | None = None

    def __post_init__(self) -> None:
        """Check what OpenFlow 1.3 (7.2.3.6) requires of each field."""
        if self.ip_proto is not None and self.eth_type not in (IPV4, IPV6):
            raise ValueError(f"a protocol of IP needs an EtherType of IP, not {self.eth_type}")
        if (self.source_port, self.destination_port) != (None, None) and self.ip_proto not in (TCP, UDP):
            raise ValueError(f"ports need TCP or UDP, not protocol {self.ip_proto}")
        if self.arp_target is not None and self.eth_type != ARP:
            raise ValueError(f"an address asked for by ARP needs its EtherType, not {self.eth_type}")
        if self.icmp6_type is not None and (self.eth_type, self.ip_proto) != (IPV6, ICMPV6):
            raise ValueError(f"a type of ICMPv6 needs this protocol over IPv6, not {self.eth_type}, {self.ip_proto}")
        if self.nd_target is not None and self.icmp6_type != SOLICITATION:
            raise ValueError(f"an address asked for by IPv6 needs a solicitation, not type {self.icmp6_type}")
        if self.vlan_mask is not None and (self.vlan is None or self.vlan == UNTAGGED):
            raise ValueError("a mask needs a VLAN")


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of a table. Without `out` and `goto` it drops. `idle_s` and `hard_s` of 0: never.

    `notify` requests RuleRemoved. `set_eth_dst` replaces the destination address before the output; `goto` is the table
    that continues after it, 0: none. Packets pass the meter with number `meter` first, if there is one. `pops_vlan`:
    the tag is removed before the output.
    """

    match: Match
    priority: int
    cookie: int
    out: tuple[int, ...] = ()
    idle_s: int = 0
    hard_s: int = 0
    notify: bool = False
    table: int = 0
    set_eth_dst: str | None = None
    goto: int = 0
    meter: int | None = None
    pops_vlan: bool = False


@dataclass(frozen=True, slots=True)
class AddRule:
    """Add a rule; one with the same match and priority is replaced at once and keeps its counters."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Delete a table's rule with exactly this match and priority, if its cookie matches under `cookie_mask`."""

    match: Match
    priority: int
    cookie: int
    cookie_mask: int = 0xFFFF_FFFF_FFFF_FFFF
    table: int = 0


@dataclass(frozen=True, slots=True)
class SetMeter:
    """Add a meter (`is_new`) or change it: it drops what exceeds a rate in kbit/s, after a burst in kbit."""

    number: int
    rate_kbit_s: int
    burst_kbit: int
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class PacketOut:
    """Send a frame out of ports."""

    out: tuple[int, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class BarrierRequest:
    """A barrier request: answered by BarrierReply once all earlier messages are executed."""

    token: int


class RequestKind(StrEnum):
    """Kinds of requests to a switch."""

    PORTS = "ports"  # answered by PortList
    PORT_COUNTERS = "port counters"  # by PortCounters
    RULES = "rules"  # by RuleList: whole rules
    RULE_COUNTERS = "rule counters"  # by RuleCounters: cookies and counters only
    METER_COUNTERS = "meter counters"  # by MeterCounters


@dataclass(frozen=True, slots=True)
class Request:
    """A request; for rules only those whose cookie matches under `cookie_mask`."""

    question: RequestKind
    cookie: int = 0
    cookie_mask: int = 0


class Role(IntEnum):
    """A controller's role at a switch, by OpenFlow's numbers. NOCHANGE only asks for it."""

    NOCHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """Take a role. `generation` must not be older than the newest one that the switch has accepted."""

    role: Role
    generation: int = 0


ToSwitch = AddRule | DeleteRule | SetMeter | PacketOut | BarrierRequest | Request | RoleRequest


@dataclass(frozen=True, slots=True)
class PortState:
    """A port of a switch: number, name, whether it is up, rate (None if unknown)."""

    number: int
    name: str
    is_up: bool
    rate_bit_s: int | None = None


@dataclass(frozen=True, slots=True)
class PortList:
    """All ports of a switch; the first such message means that the switch is ready for rules."""

    ports: tuple[PortState, ...]


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A port was added, changed or (`is_gone`) removed."""

    port: PortState
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet-in: an unmatched frame, or one that a rule sent to the controller."""

    in_port: int
    frame: bytes


class Why(StrEnum):
    """Reason of a rule's removal."""

    IDLE = "idle"
    HARD = "hard"
    DELETED = "deleted"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class RuleRemoved:
    """A rule with `notify` was removed."""

    cookie: int
    why: Why
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BarrierReply:
    """A barrier reply: all earlier messages are executed, or were refused before this."""

    token: int


@dataclass(frozen=True, slots=True)
class RoleReply:
    """Our role at a switch, and the newest generation that it has accepted from any controller; None: none yet."""

    role: Role
    generation: int | None


@dataclass(frozen=True, slots=True)
class SwitchError:
    """An error message. `request` is the refused message, None if unknown."""

    kind: int
    code: int
    text: str
    request: ToSwitch | None = None
    is_table_full: bool = False
    # Another controller is this switch's master, or has been since the generation of the request.
    is_not_master: bool = False


@dataclass(frozen=True, slots=True)
class PortCounter:
    """Bytes that a port has sent and received since the switch started."""

    number: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class PortCounters:
    """The counters of all ports of a switch."""

    counters: tuple[PortCounter, ...]


@dataclass(frozen=True, slots=True)
class MeterCounter:
    """Bytes that came to a meter, also those it dropped, and its age by the switch's clock."""

    number: int
    bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class MeterCounters:
    """The counters of all meters of a switch."""

    counters: tuple[MeterCounter, ...]


@dataclass(frozen=True, slots=True)
class RuleCounter:
    """A rule's traffic and age."""

    cookie: int
    packets: int
    bytes: int
    age_s: float


@dataclass(frozen=True, slots=True)
class RuleCounters:
    """The counters of the requested rules."""

    counters: tuple[RuleCounter, ...]


@dataclass(frozen=True, slots=True)
class RuleList:
    """The requested rules, with their counters in the same order."""

    rules: tuple[Rule, ...]
    counters: tuple[RuleCounter, ...]


@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch has completed its handshake; requests over earlier connections will not be answered."""

    datapath_id: int


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """The connection to a switch has ended; the switch may continue to forward."""

    reason: str = ""


FromSwitch = (
    SwitchUp
    | SwitchDown
    | PortList
    | PortStatus
    | PacketIn
    | RuleRemoved
    | BarrierReply
    | SwitchError
    | PortCounters
    | RuleCounters
    | MeterCounters
    | RuleList
    | RoleReply
)
