# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Encoding and decoding of messages with os-ken's layouts, numbers and match fields; pure, and total on any input.

os-ken's message parsers are not used on a switch's bytes: several walk lists by a length that may be 0, and would never
end. Encoding a flow mod by its classes takes many times as long. Its classes decode OXM fields, the largest part of
OpenFlow; the few that our rules have are encoded and decoded here, because every new flow has another match.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from socket import inet_ntoa
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from barewire.sdn.openflow.messages import (
    CONTROLLER,
    UNTAGGED,
    AddRule,
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
    Role,
    RoleReply,
    RoleRequest,
    Rule,
    RuleCounter,
    RuleCounters,
    RuleList,
    RuleRemoved,
    SetMeter,
    SwitchUp,
    ToSwitch,
    Why,
)

VERSION: int = of.OFP_VERSION
# A rule that floods has an output for each port, and a message at most 65,535 bytes, of which an output takes 16.
PORTS_MAX = 4000
HEADER = struct.Struct(of.OFP_HEADER_PACK_STR)
# With its header, since it is sent most often.
_FLOW_MOD = struct.Struct(of.OFP_HEADER_PACK_STR + of.OFP_FLOW_MOD_PACK_STR0.removeprefix("!"))
_FLOW_REMOVED = struct.Struct(of.OFP_FLOW_REMOVED_PACK_STR0)
_FLOW_STATISTICS = struct.Struct(of.OFP_FLOW_STATS_0_PACK_STR)
_FLOW_STATISTICS_REQUEST = struct.Struct(of.OFP_FLOW_STATS_REQUEST_0_PACK_STR)
_INSTRUCTION = struct.Struct(of.OFP_INSTRUCTION_ACTIONS_PACK_STR)
_METER_INSTRUCTION = struct.Struct(of.OFP_INSTRUCTION_METER_PACK_STR)
_METER_MOD = struct.Struct(of.OFP_METER_MOD_PACK_STR)
_DROP_BAND = struct.Struct(of.OFP_METER_BAND_DROP_PACK_STR)
_METER_STATISTICS = struct.Struct(of.OFP_METER_STATS_PACK_STR)
_METER_STATISTICS_REQUEST = struct.Struct(of.OFP_METER_MULTIPART_REQUEST_PACK_STR)
_OUTPUT = struct.Struct(of.OFP_ACTION_OUTPUT_PACK_STR)
_GOTO = struct.Struct(of.OFP_INSTRUCTION_GOTO_TABLE_PACK_STR)
_oxm: Any = of  # its numbers of match fields, which it creates when it is loaded
# OXM fields: class, field and length in one number, then the value.
_OXM_BYTE, _OXM_SHORT, _OXM_INT, _OXM_MAC, _OXM_IPV6 = map(struct.Struct, ("!IB", "!IH", "!II", "!I6s", "!I16s"))
_OXM_TWO_SHORTS = struct.Struct("!IHH")  # a value and its mask
_OXM_PORTS = {6: (_oxm.OXM_OF_TCP_SRC, _oxm.OXM_OF_TCP_DST), 17: (_oxm.OXM_OF_UDP_SRC, _oxm.OXM_OF_UDP_DST)}
# A set-field action's head, then the OXM field of the destination address, padded.
_SET_ETH_DST = struct.Struct("!HHI6s2x")
_OXM_ETH_DST: int = _oxm.OXM_OF_ETH_DST
_PACKET_OUT = struct.Struct(of.OFP_PACKET_OUT_PACK_STR)
_PACKET_IN = struct.Struct(of.OFP_PACKET_IN_PACK_STR)
_MULTIPART = struct.Struct(of.OFP_MULTIPART_REQUEST_PACK_STR)
_PORT = struct.Struct(of.OFP_PORT_PACK_STR)
_PORT_STATISTICS = struct.Struct(of.OFP_PORT_STATS_PACK_STR)
_FEATURES = struct.Struct("!QIBB2xI")
_TWO_SHORTS = struct.Struct("!HH")
_ROLE = struct.Struct(of.OFP_ROLE_REQUEST_PACK_STR)
# The generation in a reply of a switch that has none yet.
_NO_GENERATION = (1 << 64) - 1
_POP_VLAN = struct.pack("!HH4x", of.OFPAT_POP_VLAN, 8)
_OxmFields: Any = parser.OFPMatch  # untyped

# Longer match fields, and more output ports, than a flow's rule has are not remembered: thousands of them would take
# hundreds of megabytes.
_REMEMBERED_BYTES, _REMEMBERED_PORTS = 128, 16
_ARP_REQUEST = 1
_IP_PORTS = {6: ("tcp_src", "tcp_dst"), 17: ("udp_src", "udp_dst")}
_REASONS = {of.OFPRR_IDLE_TIMEOUT: Why.IDLE, of.OFPRR_HARD_TIMEOUT: Why.HARD, of.OFPRR_DELETE: Why.DELETED}
_MULTIPART_TYPES = {
    RequestKind.PORTS: of.OFPMP_PORT_DESC,
    RequestKind.PORT_COUNTERS: of.OFPMP_PORT_STATS,
    RequestKind.RULES: of.OFPMP_FLOW,
    RequestKind.RULE_COUNTERS: of.OFPMP_FLOW,
    RequestKind.METER_COUNTERS: of.OFPMP_METER,
}


class MalformedError(ValueError):
    """A switch sent bytes that are not OpenFlow 1.3; its channel must be closed."""


def encode(message: ToSwitch, xid: int) -> bytes:
    """Return a message's bytes."""
    match message:
        case AddRule(rule):
            return _flow_mod(rule, of.OFPFC_ADD, 0, xid)
        case DeleteRule(pattern, priority, cookie, mask, table):
            return _flow_mod(Rule(pattern, priority, cookie, table=table), of.OFPFC_DELETE_STRICT, mask, xid)
        case SetMeter(number, rate_kbit_s, burst_kbit, is_new):
            flags = of.OFPMF_KBPS | of.OFPMF_BURST | of.OFPMF_STATS
            start = _METER_MOD.pack(of.OFPMC_ADD if is_new else of.OFPMC_MODIFY, flags, number)
            band = _DROP_BAND.pack(of.OFPMBT_DROP, _DROP_BAND.size, rate_kbit_s, burst_kbit)
            return framed(of.OFPT_METER_MOD, xid, start + band)
        case PacketOut(out, frame):
            actions = _outputs(out)
            start = _PACKET_OUT.pack(of.OFP_NO_BUFFER, CONTROLLER, len(actions))
            return framed(of.OFPT_PACKET_OUT, xid, start + actions + frame)
        case BarrierRequest():
            return framed(of.OFPT_BARRIER_REQUEST, xid)
        case RoleRequest(role, generation):
            return framed(of.OFPT_ROLE_REQUEST, xid, _ROLE.pack(role, generation))
        case Request(question, cookie, mask):
            body = b""
            if question is RequestKind.PORT_COUNTERS:
                body = struct.pack(of.OFP_PORT_STATS_REQUEST_PACK_STR, of.OFPP_ANY)
            elif question is RequestKind.METER_COUNTERS:
                body = _METER_STATISTICS_REQUEST.pack(of.OFPM_ALL)
            elif question in (RequestKind.RULES, RequestKind.RULE_COUNTERS):
                # Flows have their rules in table 0.
                table = of.OFPTT_ALL if question is RequestKind.RULES else 0
                body = _FLOW_STATISTICS_REQUEST.pack(table, of.OFPP_ANY, of.OFPG_ANY, cookie, mask) + _encoded(Match())
            return framed(of.OFPT_MULTIPART_REQUEST, xid, _MULTIPART.pack(_MULTIPART_TYPES[question], 0) + body)


def framed(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a message with a header of this type before its body."""
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def hello(xid: int) -> bytes:
    """Return our hello: version 1.3 only, with a version bitmap."""
    return framed(of.OFPT_HELLO, xid, _TWO_SHORTS.pack(of.OFPHET_VERSIONBITMAP, 8) + struct.pack("!I", 1 << VERSION))


def versions_of(version: int, body: bytes) -> bool:
    """Return whether the sender of a hello supports 1.3: by its bitmap, else every version up to the header's."""
    at = 0
    while at + _TWO_SHORTS.size <= len(body):
        kind, length = _TWO_SHORTS.unpack_from(body, at)
        if length < _TWO_SHORTS.size or at + length > len(body):
            raise MalformedError(f"a hello with an element of {length} bytes")
        if kind == of.OFPHET_VERSIONBITMAP and length >= 8:
            return bool(struct.unpack_from("!I", body, at + 4)[0] >> VERSION & 1)
        at += (length + 7) // 8 * 8
    return version >= VERSION


def decode(kind: int, body: bytes, question: RequestKind | None = None) -> FromSwitch | None:
    """Decode a message received after the handshake; None if it is ignored.

    `question` is the request of a multipart reply. MalformedError if the body does not match its type.
    """
    try:
        match kind:
            case of.OFPT_PACKET_IN:
                return _packet_in(body)
            case of.OFPT_MULTIPART_REPLY:
                return None if question is None else _multipart(body, question)
            case of.OFPT_PORT_STATUS:
                return PortStatus(_port(body, 8), is_gone=body[0] == of.OFPPR_DELETE)
            case of.OFPT_FLOW_REMOVED:
                cookie, _, reason, _, _, _, _, _, packets, carried = _FLOW_REMOVED.unpack_from(body)
                return RuleRemoved(cookie, _REASONS.get(reason, Why.EVICTED), packets, carried)
            case of.OFPT_FEATURES_REPLY:
                return SwitchUp(_FEATURES.unpack_from(body)[0])
            case of.OFPT_ROLE_REPLY:
                role, generation = _ROLE.unpack_from(body)
                return RoleReply(_role(role), None if generation == _NO_GENERATION else generation)
    except (struct.error, IndexError) as error:
        raise MalformedError(f"message type {kind} with {len(body)} bytes: {error}") from error
    return None


def _role(number: int) -> Role:
    try:
        return Role(number)
    except ValueError:
        raise MalformedError(f"the role {number}") from None


def _flow_mod(rule: Rule, command: int, mask: int, xid: int) -> bytes:
    does = rule.out, rule.set_eth_dst, rule.pops_vlan, rule.goto, rule.meter
    is_short = len(rule.out) <= _REMEMBERED_PORTS
    rest = _encoded(rule.match) + (_instructions(*does) if is_short else _instructions.__wrapped__(*does))
    start = _FLOW_MOD.pack(
        VERSION,
        of.OFPT_FLOW_MOD,
        _FLOW_MOD.size + len(rest),
        xid,
        rule.cookie,
        mask,
        rule.table,
        command,
        rule.idle_s,
        rule.hard_s,
        rule.priority,
        of.OFP_NO_BUFFER,
        of.OFPP_ANY,
        of.OFPG_ANY,
        of.OFPFF_SEND_FLOW_REM if rule.notify else 0,
    )
    return start + rest


@lru_cache(maxsize=4096)
def _instructions(
    out: tuple[int, ...], set_eth_dst: str | None, pops_vlan: bool, goto: int, meter: int | None
) -> bytes:
    """Encode what a rule does; cached, because a switch has few ports."""
    actions = _outputs(out)
    if set_eth_dst is not None:
        actions = _set_eth_dst(set_eth_dst) + actions
    if pops_vlan:
        actions = _POP_VLAN + actions
    instructions = b""
    if actions:
        instructions = _INSTRUCTION.pack(of.OFPIT_APPLY_ACTIONS, _INSTRUCTION.size + len(actions)) + actions
    if goto:
        instructions += _GOTO.pack(of.OFPIT_GOTO_TABLE, _GOTO.size, goto)
    # A rule that drops needs no meter.
    if meter is not None and instructions:
        instructions = _METER_INSTRUCTION.pack(of.OFPIT_METER, _METER_INSTRUCTION.size, meter) + instructions
    return instructions


def _outputs(ports: tuple[int, ...]) -> bytes:
    # Whole frames go to the controller, because it may send them out at another switch.
    return b"".join(_OUTPUT.pack(of.OFPAT_OUTPUT, _OUTPUT.size, port, of.OFPCML_NO_BUFFER) for port in ports)


def _set_eth_dst(mac: str) -> bytes:
    return _SET_ETH_DST.pack(of.OFPAT_SET_FIELD, _SET_ETH_DST.size, _OXM_ETH_DST, bytes.fromhex(mac.replace(":", "")))


@lru_cache(maxsize=4096)
def _encoded(match: Match) -> bytes:
    """Encode a match; cached, because a flow's is the same at all its switches."""
    fields = b""
    if match.in_port is not None:
        fields += _OXM_INT.pack(_oxm.OXM_OF_IN_PORT, match.in_port)
    if match.eth_dst is not None:
        fields += _OXM_MAC.pack(_oxm.OXM_OF_ETH_DST, bytes.fromhex(match.eth_dst.replace(":", "")))
    if match.eth_src is not None:
        fields += _OXM_MAC.pack(_oxm.OXM_OF_ETH_SRC, bytes.fromhex(match.eth_src.replace(":", "")))
    if match.eth_type is not None:
        fields += _OXM_SHORT.pack(_oxm.OXM_OF_ETH_TYPE, match.eth_type)
    if match.vlan is not None:
        fields += _vlan(match.vlan, match.vlan_mask)
    if match.ip_proto is not None:
        fields += _OXM_BYTE.pack(_oxm.OXM_OF_IP_PROTO, match.ip_proto)
        source, destination = _OXM_PORTS.get(match.ip_proto, (0, 0))
        if match.source_port is not None:
            fields += _OXM_SHORT.pack(source, match.source_port)
        if match.destination_port is not None:
            fields += _OXM_SHORT.pack(destination, match.destination_port)
    if match.arp_target is not None:
        fields += _OXM_SHORT.pack(_oxm.OXM_OF_ARP_OP, _ARP_REQUEST)
        fields += _OXM_INT.pack(_oxm.OXM_OF_ARP_TPA, int(IPv4Address(match.arp_target)))
    if match.icmp6_type is not None:
        fields += _OXM_BYTE.pack(_oxm.OXM_OF_ICMPV6_TYPE, match.icmp6_type)
    if match.nd_target is not None:
        fields += _OXM_IPV6.pack(_oxm.OXM_OF_IPV6_ND_TARGET, IPv6Address(match.nd_target).packed)
    length = _TWO_SHORTS.size + len(fields)
    return _TWO_SHORTS.pack(of.OFPMT_OXM, length) + fields + bytes(-length % 8)


def _vlan(vlan: int, mask: int | None) -> bytes:
    if vlan == UNTAGGED:
        return _OXM_SHORT.pack(_oxm.OXM_OF_VLAN_VID, of.OFPVID_NONE)
    if mask is None:
        return _OXM_SHORT.pack(_oxm.OXM_OF_VLAN_VID, vlan | of.OFPVID_PRESENT)
    return _OXM_TWO_SHORTS.pack(_oxm.OXM_OF_VLAN_VID_W, vlan | of.OFPVID_PRESENT, mask | of.OFPVID_PRESENT)


def _decoded(body: bytes, at: int) -> tuple[Mapping[str, Any], int]:
    """Return a match's fields, and where it ends, padding included."""
    kind, length = _TWO_SHORTS.unpack_from(body, at)
    end = at + (length + 7) // 8 * 8
    if kind != of.OFPMT_OXM or length < _TWO_SHORTS.size or end > len(body):
        raise MalformedError(f"a match of type {kind} with {length} bytes")
    encoded = body[at:end]
    return _fields(encoded) if length <= _REMEMBERED_BYTES else _fields.__wrapped__(encoded), end


@lru_cache(maxsize=4096)
def _fields(encoded: bytes) -> Mapping[str, Any]:
    if (own := _own_fields(encoded)) is not None:
        return own
    try:
        return dict(_OxmFields.parser(encoded, 0).items())
    except Exception as error:  # os-ken has no specific error for truncated or unknown fields
        raise MalformedError(f"match fields {encoded.hex()}: {error!r}") from error


# Of a received field: the bytes before its value, and by these its name and how to read it, as os-ken does.
_OXM_HEAD = 4


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _masked(value: bytes) -> tuple[int, int]:
    half = len(value) // 2
    return _number(value[:half]), _number(value[half:])


_OWN_FIELDS: Mapping[int, tuple[str, Callable[[bytes], Any]]] = {
    _oxm.OXM_OF_IN_PORT: ("in_port", _number),
    _oxm.OXM_OF_ETH_DST: ("eth_dst", lambda value: value.hex(":")),
    _oxm.OXM_OF_ETH_SRC: ("eth_src", lambda value: value.hex(":")),
    _oxm.OXM_OF_ETH_TYPE: ("eth_type", _number),
    _oxm.OXM_OF_VLAN_VID: ("vlan_vid", _number),
    _oxm.OXM_OF_VLAN_VID_W: ("vlan_vid", _masked),
    _oxm.OXM_OF_IP_PROTO: ("ip_proto", _number),
    _oxm.OXM_OF_TCP_SRC: ("tcp_src", _number),
    _oxm.OXM_OF_TCP_DST: ("tcp_dst", _number),
    _oxm.OXM_OF_UDP_SRC: ("udp_src", _number),
    _oxm.OXM_OF_UDP_DST: ("udp_dst", _number),
    _oxm.OXM_OF_ARP_OP: ("arp_op", _number),
    _oxm.OXM_OF_ARP_TPA: ("arp_tpa", inet_ntoa),
    _oxm.OXM_OF_ICMPV6_TYPE: ("icmpv6_type", _number),
    _oxm.OXM_OF_IPV6_ND_TARGET: ("ipv6_nd_target", lambda value: str(IPv6Address(value))),
}


def _own_fields(encoded: bytes) -> Mapping[str, Any] | None:
    """Read a match as os-ken would, in a tenth of the time; None if it has other fields than our rules, or is wrong."""
    at, end = _TWO_SHORTS.size, _TWO_SHORTS.unpack_from(encoded)[1]
    found: dict[str, Any] = {}
    while at + _OXM_HEAD <= end:
        head = int.from_bytes(encoded[at : at + _OXM_HEAD], "big")
        name, read = _OWN_FIELDS.get(head, ("", None))
        begin, at = at + _OXM_HEAD, at + _OXM_HEAD + (head & 0xFF)
        if read is None or at > end:
            return None
        found[name] = read(encoded[begin:at])
    return found if at == end else None


def _match(fields: Mapping[str, Any]) -> Match | None:
    """Return the match, None if it has fields that our rules do not use."""
    ports = _IP_PORTS.get(fields.get("ip_proto", 0), ("", ""))
    names = dict(zip(ports, ("source_port", "destination_port"), strict=True))
    known = {names.get(name, name): value for name, value in fields.items()}
    if "vlan_vid" in known:
        tagged = known.pop("vlan_vid")
        value, mask = tagged if isinstance(tagged, tuple) else (tagged, None)
        if tagged == of.OFPVID_NONE:
            known["vlan"] = UNTAGGED
        elif not value & of.OFPVID_PRESENT or (mask is not None and not mask & of.OFPVID_PRESENT):
            return None
        else:
            known["vlan"] = value & ~of.OFPVID_PRESENT
            known["vlan_mask"] = None if mask is None else mask & ~of.OFPVID_PRESENT
    if "arp_tpa" in known and known.pop("arp_op", None) == _ARP_REQUEST:
        known["arp_target"] = known.pop("arp_tpa")
    if "icmpv6_type" in known:
        known["icmp6_type"] = known.pop("icmpv6_type")
    if isinstance(target := known.pop("ipv6_nd_target", None), str):
        known["nd_target"] = str(IPv6Address(target))
    elif target is not None:
        return None  # under a mask
    if not known.keys() <= set(Match.__slots__) or any(isinstance(value, tuple) for value in known.values()):
        return None
    try:
        return Match(**known)
    except ValueError:  # a field without what it requires, which a switch does not have
        return None


def _packet_in(body: bytes) -> PacketIn:
    fields, end = _decoded(body, _PACKET_IN.size)
    in_port = fields.get("in_port")
    if not isinstance(in_port, int):
        raise MalformedError("a packet-in without its port")
    return PacketIn(in_port, body[end + 2 :])


def _multipart(body: bytes, question: RequestKind) -> FromSwitch:
    kind, _ = _MULTIPART.unpack_from(body)
    if kind != _MULTIPART_TYPES[question]:
        raise MalformedError(f"an answer of type {kind} to a question for {question}")
    at = _MULTIPART.size
    if question is RequestKind.PORTS:
        if len(body) > at + PORTS_MAX * _PORT.size:
            raise MalformedError(f"{(len(body) - at) // _PORT.size} ports, above {PORTS_MAX}")
        return PortList(tuple(_port(body, here) for here in range(at, len(body), _PORT.size)))
    if question is RequestKind.PORT_COUNTERS:
        found = [_PORT_STATISTICS.unpack_from(body, here) for here in range(at, len(body), _PORT_STATISTICS.size)]
        return PortCounters(
            tuple(PortCounter(counters[0], sent_bytes=counters[4], received_bytes=counters[3]) for counters in found)
        )
    if question is RequestKind.METER_COUNTERS:
        return MeterCounters(tuple(_meters(body, at)))
    entries = list(_flow_entries(body, at))
    counters = tuple(counter for _, _, counter in entries)
    if question is RequestKind.RULE_COUNTERS:
        return RuleCounters(counters)
    pairs = [(_rule(body, here, end), counter) for here, end, counter in entries]
    known = [(rule, counter) for rule, counter in pairs if rule is not None]
    return RuleList(tuple(rule for rule, _ in known), tuple(counter for _, counter in known))


def _flow_entries(body: bytes, at: int) -> Iterator[tuple[int, int, RuleCounter]]:
    while at < len(body):
        length, _, seconds, nanoseconds, _, _, _, _, cookie, packets, carried = _FLOW_STATISTICS.unpack_from(body, at)
        if length < _FLOW_STATISTICS.size or at + length > len(body):
            raise MalformedError(f"a flow's statistics with {length} bytes")
        yield at, at + length, RuleCounter(cookie, packets, carried, seconds + nanoseconds / 1e9)
        at += length


def _meters(body: bytes, at: int) -> Iterator[MeterCounter]:
    while at < len(body):
        number, length, _, _, carried, seconds, nanoseconds = _METER_STATISTICS.unpack_from(body, at)
        if length < _METER_STATISTICS.size or at + length > len(body):
            raise MalformedError(f"a meter's statistics with {length} bytes")
        yield MeterCounter(number, carried, seconds + nanoseconds / 1e9)
        at += length


def _rule(body: bytes, at: int, end: int) -> Rule | None:
    """Return a rule in our form, None for one with other match fields or actions."""
    _, table, _, _, priority, idle_s, hard_s, flags, cookie, _, _ = _FLOW_STATISTICS.unpack_from(body, at)
    fields, at = _decoded(body, at + _FLOW_STATISTICS.size)
    match = _match(fields)
    out: tuple[int, ...] = ()
    mac, goto, meter, pops_vlan = None, 0, None, False
    while at < end:
        kind, length = _TWO_SHORTS.unpack_from(body, at)
        if kind == of.OFPIT_METER and length == _METER_INSTRUCTION.size:
            meter = _METER_INSTRUCTION.unpack_from(body, at)[2]
        elif kind == of.OFPIT_GOTO_TABLE and length == _GOTO.size:
            _, _, goto = _GOTO.unpack_from(body, at)
        elif kind == of.OFPIT_APPLY_ACTIONS and _INSTRUCTION.size <= length <= end - at:
            actions = _actions(body, at + _INSTRUCTION.size, at + length)
            if actions is None:
                return None
            pops_vlan, mac, out = actions
        else:
            return None
        at += length
    notify = bool(flags & of.OFPFF_SEND_FLOW_REM)
    if match is None:
        return None
    return Rule(match, priority, cookie, out, idle_s, hard_s, notify, table, mac, goto, meter, pops_vlan)


def _actions(body: bytes, at: int, end: int) -> tuple[bool, str | None, tuple[int, ...]] | None:
    """Return whether the tag is removed, the new destination address and the output ports of a list of actions.

    None if there are others.
    """
    pops_vlan = False
    mac: str | None = None
    out: list[int] = []
    while at < end:
        action, length = _TWO_SHORTS.unpack_from(body, at)
        if action == of.OFPAT_OUTPUT and length == _OUTPUT.size:
            out.append(_OUTPUT.unpack_from(body, at)[2])
        elif action == of.OFPAT_SET_FIELD and length == _SET_ETH_DST.size and not out:
            _, _, field, address = _SET_ETH_DST.unpack_from(body, at)
            if field != _OXM_ETH_DST:
                return None
            mac = address.hex(":")
        elif action == of.OFPAT_POP_VLAN and length == len(_POP_VLAN) and not (pops_vlan or out):
            pops_vlan = True
        else:
            return None
        at += length
    return pops_vlan, mac, tuple(out)


def _port(body: bytes, at: int) -> PortState:
    number, _, name, config, state, _, _, _, _, rate_kbit_s, _ = _PORT.unpack_from(body, at)
    is_up = not (config & of.OFPPC_PORT_DOWN or state & of.OFPPS_LINK_DOWN)
    return PortState(number, name.rstrip(b"\0").decode(errors="replace"), is_up, rate_kbit_s * 1000 or None)
