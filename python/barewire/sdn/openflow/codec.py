# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Encoding and decoding of messages with os-ken's layouts, numbers and match fields; pure, and total on any input.

os-ken's message parsers are not used on a switch's bytes: several walk lists by a length that may be 0, and would never
end. Encoding a flow mod by its classes takes three times as long. OXM fields, the largest part of OpenFlow, are encoded
and decoded by its classes.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from barewire.sdn.openflow.messages import (
    CONTROLLER,
    AddRule,
    BarrierRequest,
    DeleteRule,
    FromSwitch,
    Match,
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
    SwitchUp,
    ToSwitch,
    Why,
)

VERSION: int = of.OFP_VERSION
HEADER = struct.Struct(of.OFP_HEADER_PACK_STR)
_FLOW_MOD = struct.Struct(of.OFP_FLOW_MOD_PACK_STR0)
_FLOW_REMOVED = struct.Struct(of.OFP_FLOW_REMOVED_PACK_STR0)
_FLOW_STATISTICS = struct.Struct(of.OFP_FLOW_STATS_0_PACK_STR)
_FLOW_STATISTICS_REQUEST = struct.Struct(of.OFP_FLOW_STATS_REQUEST_0_PACK_STR)
_INSTRUCTION = struct.Struct(of.OFP_INSTRUCTION_ACTIONS_PACK_STR)
_OUTPUT = struct.Struct(of.OFP_ACTION_OUTPUT_PACK_STR)
_PACKET_OUT = struct.Struct(of.OFP_PACKET_OUT_PACK_STR)
_PACKET_IN = struct.Struct(of.OFP_PACKET_IN_PACK_STR)
_MULTIPART = struct.Struct(of.OFP_MULTIPART_REQUEST_PACK_STR)
_PORT = struct.Struct(of.OFP_PORT_PACK_STR)
_PORT_STATISTICS = struct.Struct(of.OFP_PORT_STATS_PACK_STR)
_FEATURES = struct.Struct("!QIBB2xI")
_TWO_SHORTS = struct.Struct("!HH")
_POP_VLAN = struct.pack("!HH4x", of.OFPAT_POP_VLAN, 8)
_OxmFields: Any = parser.OFPMatch  # untyped

_IP_PORTS = {6: ("tcp_src", "tcp_dst"), 17: ("udp_src", "udp_dst")}
_REASONS = {of.OFPRR_IDLE_TIMEOUT: Why.IDLE, of.OFPRR_HARD_TIMEOUT: Why.HARD, of.OFPRR_DELETE: Why.DELETED}
_MULTIPART_TYPES = {
    RequestKind.PORTS: of.OFPMP_PORT_DESC,
    RequestKind.PORT_COUNTERS: of.OFPMP_PORT_STATS,
    RequestKind.RULES: of.OFPMP_FLOW,
    RequestKind.RULE_COUNTERS: of.OFPMP_FLOW,
}


class MalformedError(ValueError):
    """A switch sent bytes that are not OpenFlow 1.3; its channel must be closed."""


def encode(message: ToSwitch, xid: int) -> bytes:
    """Return a message's bytes."""
    match message:
        case AddRule(rule):
            return _flow_mod(rule, of.OFPFC_ADD, 0, xid)
        case DeleteRule(pattern, priority, cookie, mask):
            return _flow_mod(Rule(pattern, priority, cookie), of.OFPFC_DELETE_STRICT, mask, xid)
        case PacketOut(out, frame):
            actions = _outputs(out)
            start = _PACKET_OUT.pack(of.OFP_NO_BUFFER, CONTROLLER, len(actions))
            return framed(of.OFPT_PACKET_OUT, xid, start + actions + frame)
        case BarrierRequest():
            return framed(of.OFPT_BARRIER_REQUEST, xid)
        case Request(question, cookie, mask):
            body = b""
            if question is RequestKind.PORT_COUNTERS:
                body = struct.pack(of.OFP_PORT_STATS_REQUEST_PACK_STR, of.OFPP_ANY)
            elif question in (RequestKind.RULES, RequestKind.RULE_COUNTERS):
                body = _FLOW_STATISTICS_REQUEST.pack(0, of.OFPP_ANY, of.OFPG_ANY, cookie, mask) + _encoded(Match())
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
    except (struct.error, IndexError) as error:
        raise MalformedError(f"message type {kind} with {len(body)} bytes: {error}") from error
    return None


def _flow_mod(rule: Rule, command: int, mask: int, xid: int) -> bytes:
    start = _FLOW_MOD.pack(
        rule.cookie,
        mask,
        0,
        command,
        rule.idle_s,
        rule.hard_s,
        rule.priority,
        of.OFP_NO_BUFFER,
        of.OFPP_ANY,
        of.OFPG_ANY,
        of.OFPFF_SEND_FLOW_REM if rule.notify else 0,
    )
    actions = (_POP_VLAN if rule.pops_vlan else b"") + _outputs(rule.out)
    instructions = _INSTRUCTION.pack(of.OFPIT_APPLY_ACTIONS, _INSTRUCTION.size + len(actions)) + actions
    return framed(of.OFPT_FLOW_MOD, xid, start + _encoded(rule.match) + (instructions if actions else b""))


def _outputs(ports: tuple[int, ...]) -> bytes:
    # Whole frames go to the controller, because it may send them out at another switch.
    return b"".join(_OUTPUT.pack(of.OFPAT_OUTPUT, _OUTPUT.size, port, of.OFPCML_NO_BUFFER) for port in ports)


@lru_cache(maxsize=4096)
def _encoded(match: Match) -> bytes:
    """Encode a match; cached, because a flow's is the same at all its switches."""
    source, destination = _IP_PORTS.get(match.ip_proto or 0, ("", ""))
    fields = {
        "in_port": match.in_port,
        "eth_src": match.eth_src,
        "eth_dst": match.eth_dst,
        "eth_type": match.eth_type,
        "ip_proto": match.ip_proto,
        source: match.source_port,
        destination: match.destination_port,
        "vlan_vid": _vlan(match),
    }
    buffer = bytearray()
    _OxmFields(**{name: value for name, value in fields.items() if value is not None}).serialize(buffer, 0)
    return bytes(buffer)


def _vlan(match: Match) -> int | tuple[int, int] | None:
    if match.vlan is None:
        return None
    tagged = match.vlan | of.OFPVID_PRESENT
    return tagged if match.vlan_mask is None else (tagged, match.vlan_mask | of.OFPVID_PRESENT)


def _decoded(body: bytes, at: int) -> tuple[Mapping[str, Any], int]:
    """Return a match's fields, and where it ends, padding included."""
    kind, length = _TWO_SHORTS.unpack_from(body, at)
    end = at + (length + 7) // 8 * 8
    if kind != of.OFPMT_OXM or length < _TWO_SHORTS.size or end > len(body):
        raise MalformedError(f"a match of type {kind} with {length} bytes")
    return _fields(body[at:end]), end


@lru_cache(maxsize=4096)
def _fields(encoded: bytes) -> Mapping[str, Any]:
    try:
        return dict(_OxmFields.parser(encoded, 0).items())
    except Exception as error:  # os-ken has no specific error for truncated or unknown fields
        raise MalformedError(f"match fields {encoded.hex()}: {error!r}") from error


def _match(fields: Mapping[str, Any]) -> Match | None:
    """Return the match, None if it has fields that our rules do not use."""
    ports = _IP_PORTS.get(fields.get("ip_proto", 0), ("", ""))
    names = dict(zip(ports, ("source_port", "destination_port"), strict=True))
    known = {names.get(name, name): value for name, value in fields.items()}
    if "vlan_vid" in known:
        tagged = known.pop("vlan_vid")
        value, mask = tagged if isinstance(tagged, tuple) else (tagged, None)
        if not value & of.OFPVID_PRESENT or (mask is not None and not mask & of.OFPVID_PRESENT):
            return None
        known["vlan"] = value & ~of.OFPVID_PRESENT
        known["vlan_mask"] = None if mask is None else mask & ~of.OFPVID_PRESENT
    if not known.keys() <= set(Match.__slots__) or any(isinstance(value, tuple) for value in known.values()):
        return None
    return Match(**known)


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
        return PortList(tuple(_port(body, here) for here in range(at, len(body), _PORT.size)))
    if question is RequestKind.PORT_COUNTERS:
        found = [_PORT_STATISTICS.unpack_from(body, here) for here in range(at, len(body), _PORT_STATISTICS.size)]
        return PortCounters(
            tuple(PortCounter(counters[0], sent_bytes=counters[4], received_bytes=counters[3]) for counters in found)
        )
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


def _rule(body: bytes, at: int, end: int) -> Rule | None:
    """Return a rule in our form, None for one with other match fields or actions."""
    _, _, _, _, priority, idle_s, hard_s, flags, cookie, _, _ = _FLOW_STATISTICS.unpack_from(body, at)
    fields, at = _decoded(body, at + _FLOW_STATISTICS.size)
    match = _match(fields)
    out: list[int] = []
    pops_vlan = False
    if at < end:
        kind, length = _INSTRUCTION.unpack_from(body, at)
        if kind != of.OFPIT_APPLY_ACTIONS or at + length != end:
            return None
        at += _INSTRUCTION.size
        if body[at : at + len(_POP_VLAN)] == _POP_VLAN:
            pops_vlan = True
            at += len(_POP_VLAN)
        for here in range(at, end, _OUTPUT.size):
            action, _, port, _ = _OUTPUT.unpack_from(body, here)
            if action != of.OFPAT_OUTPUT:
                return None
            out.append(port)
    notify = bool(flags & of.OFPFF_SEND_FLOW_REM)
    return None if match is None else Rule(match, priority, cookie, tuple(out), idle_s, hard_s, notify, pops_vlan)


def _port(body: bytes, at: int) -> PortState:
    number, _, name, config, state, _, _, _, _, rate_kbit_s, _ = _PORT.unpack_from(body, at)
    is_up = not (config & of.OFPPC_PORT_DOWN or state & of.OFPPS_LINK_DOWN)
    return PortState(number, name.rstrip(b"\0").decode(errors="replace"), is_up, rate_kbit_s * 1000 or None)
