# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller's rules: matches of flows, priorities, cookies. Pure.

The cookie identifies a rule, also for a later controller:

    | ours 16 | kind 4 | reserved seconds 12 | number 32 |        all else of a flow is in its match and its output port
"""

import math
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv6Address

from barewire.sdn.controller.frames import BROADCAST, JUMBO_LLC, LENGTH_FRAME, LLDP, LLDP_GROUP
from barewire.sdn.controller.hosts import Address, Hosts
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import (
    ADVERTISEMENT,
    ARP,
    CONTROLLER,
    ICMPV6,
    IPV4,
    IPV6,
    SOLICITATION,
    TCP,
    UDP,
    UNTAGGED,
    Match,
    Rule,
)
from barewire.sdn.strategies.labels import LABELS_MAX, Choice
from barewire.sdn.strategies.strategy import RESERVE_MAX_S

# Priorities of table 0. Probes come before all else, unless a host floods with them. A flooding port loses only packets
# that match no flow rule. Aggregate rules come before the default path, whose copies of TCP, UDP and IPv6's
# advertisements of addresses come before rules for other packets of IP between the same hosts.
PRIORITY_DROP_PROBES = 450
PRIORITY_PROBE = 400
PRIORITY_LABEL = 350
PRIORITY_FLOW = 300
PRIORITY_DROP = 250
PRIORITY_TO_HOST = 220
PRIORITY_ASK_PORTS = 200
PRIORITY_IP = 100
PRIORITY_EDGE = 50
PRIORITY_MISS = 0
# The default path's table, and its priorities; the rest of its frames are flooded.
DEFAULT_TABLE = 1
PRIORITY_ASKED = 200
PRIORITY_DESTINATION = 100
# VLAN identifier of label 0; the lower six bits are the label. Real VLANs must not use 3840 to 3903.
LABEL_FIRST = 0xF00
LABELS = range(LABEL_FIRST, LABEL_FIRST + LABELS_MAX)
_LABEL_BITS = LABELS_MAX - 1
_VLAN_BITS = 0xFFF
# What a solicitation for an address is sent to: this, and the address's last three bytes (RFC 4291, 2.7.1).
_SOLICITED_NODE = "33:33:ff"
_NUMBER = 0xFFFF_FFFF
_OURS = 0xBA7E
# The reservation of a flow's lifetime.
_ENDLESS = 0xFFF
assert RESERVE_MAX_S < _ENDLESS


class Kind(IntEnum):
    """Kind of a rule."""

    BASE = 1  # present in every switch: probes to the controller, other frames to the default path
    FLOW = 2  # one flow
    TO_HOST = 3  # aggregate rule for flows to one host, in a full table
    DROP = 4  # for a while, drops unmatched packets of a port, or sends no copies of them
    DEFAULT = 5  # the default path, in table 1
    EDGE = 6  # copies a port's unmatched packets to the controller
    LABEL = 7  # labelled frames to one host


_KINDS = {kind.value: kind for kind in Kind}
# Masks: all our rules; rules of one kind; rules of one flow regardless of its reservation.
OURS_MASK = 0xFFFF << 48
KIND_MASK = OURS_MASK | 0xF << 44
NUMBER_MASK = KIND_MASK | 0xFFFF_FFFF


def cookie(kind: Kind, number: int = 0, reserve_s: float = 0.0) -> int:
    """Return a rule's cookie."""
    reserved = _ENDLESS if math.isinf(reserve_s) else min(math.ceil(reserve_s), RESERVE_MAX_S)
    return _OURS << 48 | kind << 44 | reserved << 32 | number & _NUMBER


def kind_of(value: int) -> Kind | None:
    """Return the kind in a cookie, None if the rule is not ours."""
    return _KINDS.get(value >> 44 & 0xF) if value >> 48 == _OURS else None


def number_of(value: int) -> int:
    """Return the number in a cookie."""
    return value & _NUMBER


def reserve_of(value: int) -> float:
    """Return the reservation in a cookie in seconds; infinite: for the flow's lifetime."""
    reserved = value >> 32 & _ENDLESS
    return math.inf if reserved == _ENDLESS else float(reserved)


def base_rules() -> list[Rule]:
    """Return the base rules of every switch: probes go to the controller, unmatched packets take the default path."""
    base = cookie(Kind.BASE)
    return [
        Rule(Match(eth_dst=LLDP_GROUP, eth_type=LLDP), PRIORITY_PROBE, base, (CONTROLLER,)),
        Rule(Match(), PRIORITY_MISS, base, goto=DEFAULT_TABLE),
    ]


@lru_cache(maxsize=4096)
def edge_rules(port: int) -> tuple[Rule, ...]:
    """Return the rules that copy a port's unmatched packets to the controller; they still take the default path.

    TCP, UDP and advertisements of IPv6 have separate rules; otherwise new connections, and the addresses of neighbours,
    would match the rule of other packets of IP between their hosts.
    """
    asked = [
        Match(in_port=port, eth_type=eth_type, ip_proto=protocol)
        for eth_type in (IPV4, IPV6)
        for protocol in (TCP, UDP)
    ]
    asked.append(Match(in_port=port, eth_type=IPV6, ip_proto=ICMPV6, icmp6_type=ADVERTISEMENT))
    pairs = [*((match, PRIORITY_ASK_PORTS) for match in asked), (Match(in_port=port), PRIORITY_EDGE)]
    value = cookie(Kind.EDGE, port)
    return tuple(Rule(match, priority, value, (CONTROLLER,), goto=DEFAULT_TABLE) for match, priority in pairs)


def destination_rule(mac: str, port: int) -> Rule:
    """Return the default rule for frames to a host."""
    value = cookie(Kind.DEFAULT)
    return Rule(Match(eth_dst=mac), PRIORITY_DESTINATION, value, (port,), table=DEFAULT_TABLE)


def asked_rule(address: Address, mac: str, port: int) -> Rule:
    """Return the default rule for requests for a known address: they go to its owner only, by unicast.

    These are broadcast requests of ARP and multicast solicitations of IPv6, with the tag of the address's VLAN, which
    they keep.
    """
    value = cookie(Kind.DEFAULT)
    match = asked_match(address)
    return Rule(match, PRIORITY_ASKED, value, (port,), table=DEFAULT_TABLE, set_eth_dst=mac)


def asked_match(address: Address) -> Match:
    """Return the match of requests for an address."""
    vlan = address.vlan or UNTAGGED
    if ":" not in address.ip:
        return Match(eth_dst=BROADCAST, eth_type=ARP, arp_target=address.ip, vlan=vlan)
    group = f"{_SOLICITED_NODE}:{IPv6Address(address.ip).packed[-3:].hex(':')}"
    return Match(
        eth_dst=group,
        eth_type=IPV6,
        ip_proto=ICMPV6,
        icmp6_type=SOLICITATION,
        nd_target=address.ip,
        vlan=vlan,
    )


def asked_of(rule: Rule) -> Address | None:
    """Return the address of which a rule found in a switch sends requests to their owner; None for another rule."""
    match = rule.match
    target = match.arp_target if match.nd_target is None else match.nd_target
    if target is None or match.vlan is None:
        return None
    return Address(0 if match.vlan == UNTAGGED else match.vlan, target)


def flood_rule(ports: Iterable[int]) -> Rule:
    """Return the default rule for all other frames: out of these ports, except the one they came from."""
    return Rule(Match(), PRIORITY_MISS, cookie(Kind.DEFAULT), tuple(sorted(ports)), table=DEFAULT_TABLE)


def flow_matches(key: FlowKey, hosts: Hosts) -> tuple[tuple[Match, int], ...]:
    """Return the matches, with priorities, that cover a flow's packets.

    Hosts are matched by MAC address, regardless of their IP addresses and of tags, which packets keep.
    LLC needs two matches, frames with a length and EtherType 0x8870.
    """
    source, destination = hosts.by_name[key.source].mac, hosts.by_name[key.destination].mac
    if key.protocol == "llc":
        pairs = [Match(eth_src=source, eth_dst=destination, eth_type=kind) for kind in (LENGTH_FRAME, JUMBO_LLC)]
        return tuple((match, PRIORITY_FLOW) for match in pairs)
    eth_type = IPV6 if key.protocol.endswith("6") else IPV4
    if key.transport == "ip":
        return ((Match(eth_src=source, eth_dst=destination, eth_type=eth_type), PRIORITY_IP),)
    protocol = TCP if key.transport == "tcp" else UDP
    return (
        (
            Match(
                eth_src=source,
                eth_dst=destination,
                eth_type=eth_type,
                ip_proto=protocol,
                source_port=key.source_port,
                destination_port=key.destination_port,
            ),
            PRIORITY_FLOW,
        ),
    )


def key_of(rule: Rule, hosts: Hosts) -> FlowKey | None:
    """Return the flow of a rule found in a switch, None if it is not a flow rule."""
    match = rule.match
    if match.eth_src is None or match.eth_dst is None or match.in_port is not None:
        return None
    source, destination = hosts.named(match.eth_src), hosts.named(match.eth_dst)
    if match.eth_type in (LENGTH_FRAME, JUMBO_LLC):
        return FlowKey(source, destination, "llc")
    if match.eth_type not in (IPV4, IPV6):
        return None
    version = "6" if match.eth_type == IPV6 else ""
    if match.ip_proto is None:
        return FlowKey(source, destination, f"ip{version}")
    protocol = {TCP: "tcp", UDP: "udp"}.get(match.ip_proto)
    if protocol is None or match.source_port is None or match.destination_port is None:
        return None
    return FlowKey(source, destination, protocol + version, match.source_port, match.destination_port)


def to_host_rule(mac: str, port: int) -> Rule:
    """Return the aggregate rule for all flows to one host through one port."""
    return Rule(Match(eth_dst=mac), PRIORITY_TO_HOST, cookie(Kind.TO_HOST, port), (port,))


def drop_rule(
    port: int, hard_s: int, eth_type: int | None = None, eth_src: str | None = None, ip_proto: int | None = None
) -> Rule:
    """Return the rule that drops a port's unmatched frames for a while: of all kinds, a type, or a source."""
    match = Match(in_port=port, eth_type=eth_type, eth_src=eth_src, ip_proto=ip_proto)
    return Rule(match, PRIORITY_DROP, cookie(Kind.DROP, port), (), hard_s=hard_s)


def drop_probes_rule(port: int, hard_s: int) -> Rule:
    """Return the rule that drops what looks like probes, at a port, for a while."""
    match = Match(in_port=port, eth_dst=LLDP_GROUP, eth_type=LLDP)
    return Rule(match, PRIORITY_DROP_PROBES, cookie(Kind.DROP, port), (), hard_s=hard_s)


def quiet_rule(port: int, hard_s: int, eth_type: int) -> Rule:
    """Return the rule that sends no copies of a port's frames of a type for a while; they take the default path."""
    match = Match(in_port=port, eth_type=eth_type)
    return Rule(match, PRIORITY_DROP, cookie(Kind.DROP, port), (), hard_s=hard_s, goto=DEFAULT_TABLE)


def quiet_flow_rules(key: FlowKey, hosts: Hosts, hard_s: int) -> list[Rule]:
    """Return the rules that send no copies of a flow's packets for a while; they take the default path."""
    value = cookie(Kind.DROP)
    return [
        Rule(match, priority, value, (), hard_s=hard_s, goto=DEFAULT_TABLE)
        for match, priority in flow_matches(key, hosts)
    ]


def label_rules(mac: str, choice: Choice, count: int) -> list[Rule]:
    """Return the rules of a switch for frames to a host with labels below `count`.

    One for each next hop if bits of the label select it, else one for each label.
    """
    width, stride = len(choice.hops), choice.stride
    if width == 1:
        return [_label_rule(mac, 0, 0, choice.hops[0].number)]
    if width & width - 1 == stride & stride - 1 == 0:
        # Of more next hops than labels, some have none; what is above is no label, but another VLAN.
        bits, hops = (width - 1) * stride & _LABEL_BITS, choice.hops[: -(-LABELS_MAX // stride)]
        return [_label_rule(mac, number * stride, bits, port.number) for number, port in enumerate(hops)]
    return [_label_rule(mac, label, _LABEL_BITS, choice.hop(label).number) for label in range(count)]


def last_label_rule(mac: str, port: int) -> Rule:
    """Return the rule of a host's own switch for frames with any label: the tag ends here."""
    return _label_rule(mac, 0, 0, port, pops_vlan=True)


def _label_rule(mac: str, label: int, bits: int, port: int, *, pops_vlan: bool = False) -> Rule:
    mask = _VLAN_BITS & ~_LABEL_BITS | bits
    match = Match(eth_dst=mac, vlan=LABEL_FIRST | label, vlan_mask=None if mask == _VLAN_BITS else mask)
    return Rule(match, PRIORITY_LABEL, cookie(Kind.LABEL), (port,), pops_vlan=pops_vlan)
