# SPDX-License-Identifier: Apache-2.0 OR MIT
"""OpenFlow on the wire: os-ken's parser reads our messages, and no bytes of a switch do harm."""

import asyncio
import random
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.openflow import codec
from barewire.sdn.openflow.channel import Channel, Listener
from barewire.sdn.openflow.codec import HEADER, PORTS_MAX, MalformedError, decode, encode, framed
from barewire.sdn.openflow.messages import (
    CONTROLLER,
    AddRule,
    BarrierReply,
    BarrierRequest,
    DeleteRule,
    Match,
    MeterCounter,
    MeterCounters,
    PacketIn,
    PacketOut,
    PortCounters,
    PortList,
    PortState,
    Request,
    RequestKind,
    Role,
    RoleReply,
    RoleRequest,
    Rule,
    RuleCounters,
    RuleList,
    RuleRemoved,
    SetMeter,
    SwitchError,
    SwitchUp,
    Why,
)
from barewire.sdn.openflow.session import DEAD_AFTER_S, ECHO_AFTER_S, HANDSHAKE_S, ClosedError, Session

VERSION_1_3 = ProtocolDesc(of.OFP_VERSION)
TCP_MATCH = Match(
    eth_src="02:ba:7e:00:00:01",
    eth_dst="02:ba:7e:00:00:02",
    eth_type=0x0800,
    ip_proto=6,
    source_port=1000,
    destination_port=2000,
)
RULE = Rule(TCP_MATCH, 300, 0xBA7E_2000_0000_0007, (3,), idle_s=20, hard_s=60, notify=True)
PORT_BYTES = struct.pack(of.OFP_PORT_PACK_STR, 1, b"\x02" * 6, b"s1-eth1", 0, 0, 0, 0, 0, 0, 10_000_000, 0)


def read(message: bytes):  # type: ignore[no-untyped-def]
    """Parse with os-ken."""
    version, kind, length, xid = HEADER.unpack_from(message)
    assert length == len(message)
    return ofproto_parser.msg(VERSION_1_3, version, kind, length, xid, message)


def test_another_parser_reads_our_rules() -> None:
    message = read(encode(AddRule(RULE), 9))
    assert isinstance(message, parser.OFPFlowMod) and message.command == of.OFPFC_ADD and message.xid == 9
    assert (message.cookie, message.priority, message.idle_timeout, message.hard_timeout) == (RULE.cookie, 300, 20, 60)
    assert message.flags == of.OFPFF_SEND_FLOW_REM and message.buffer_id == of.OFP_NO_BUFFER
    assert dict(message.match.items()) == {
        "eth_src": "02:ba:7e:00:00:01",
        "eth_dst": "02:ba:7e:00:00:02",
        "eth_type": 0x0800,
        "ip_proto": 6,
        "tcp_src": 1000,
        "tcp_dst": 2000,
    }
    ((action,),) = [instruction.actions for instruction in message.instructions]
    assert action.port == 3
    default = Rule(
        Match(eth_dst="ff:ff:ff:ff:ff:ff", eth_type=0x0806, arp_target="10.0.0.9"),
        200,
        1,
        (4,),
        table=1,
        set_eth_dst="02:ba:7e:00:00:02",
    )
    message = read(encode(AddRule(default), 1))
    assert message.table_id == 1
    assert dict(message.match.items()) == {
        "eth_dst": "ff:ff:ff:ff:ff:ff",
        "eth_type": 0x0806,
        "arp_op": 1,
        "arp_tpa": "10.0.0.9",
    }
    ((replaced, output),) = [instruction.actions for instruction in message.instructions]
    assert (replaced.key, replaced.value, output.port) == ("eth_dst", "02:ba:7e:00:00:02", 4)
    edge = read(encode(AddRule(Rule(Match(in_port=3, eth_type=0x0800, ip_proto=17), 50, 1, (CONTROLLER,), goto=1)), 1))
    assert dict(edge.match.items()) == {"in_port": 3, "eth_type": 0x0800, "ip_proto": 17}
    copied, goto = edge.instructions
    assert copied.actions[0].port == CONTROLLER and goto.table_id == 1
    match = Match(eth_dst="02:ba:7e:00:00:02", vlan=0xF02, vlan_mask=0xFC2)
    label = Rule(match, 350, 0xBA7E_7000_0000_0000, (3,), pops_vlan=True)
    tagged = read(encode(AddRule(label), 1))
    assert dict(tagged.match.items()) == {"eth_dst": "02:ba:7e:00:00:02", "vlan_vid": (0x1F02, 0x1FC2)}
    ((popped, output),) = [instruction.actions for instruction in tagged.instructions]
    assert popped.type == of.OFPAT_POP_VLAN and output.port == 3
    exact = read(encode(AddRule(replace(label, match=replace(match, vlan_mask=None))), 1))
    assert dict(exact.match.items()) == {"eth_dst": "02:ba:7e:00:00:02", "vlan_vid": 0x1F02}
    deleted = read(encode(DeleteRule(TCP_MATCH, 300, RULE.cookie, 0xFF), 1))
    assert (deleted.command, deleted.cookie_mask, deleted.out_port) == (of.OFPFC_DELETE_STRICT, 0xFF, of.OFPP_ANY)
    dropped = read(encode(AddRule(Rule(Match(in_port=4), 250, 1)), 1))
    assert dropped.instructions == [] and dict(dropped.match.items()) == {"in_port": 4}


def test_another_parser_reads_our_packet_outs_requests_and_barriers() -> None:
    outputs = [parser.OFPActionOutput(port, of.OFPCML_NO_BUFFER) for port in (1, 2)]
    expected = parser.OFPPacketOut(VERSION_1_3, of.OFP_NO_BUFFER, CONTROLLER, outputs, b"frame")
    expected.set_xid(1)
    expected.serialize()
    assert encode(PacketOut((1, 2), b"frame"), 1) == bytes(expected.buf)
    barrier = parser.OFPBarrierRequest(VERSION_1_3)
    barrier.set_xid(1)
    barrier.serialize()
    assert encode(BarrierRequest(5), 1) == bytes(barrier.buf)
    request = encode(Request(RequestKind.RULES, 0xBA7E << 48, 0xFFFF << 48), 1)
    body = struct.unpack_from(of.OFP_FLOW_STATS_REQUEST_0_PACK_STR, request, 16)
    assert body[-2:] == (0xBA7E << 48, 0xFFFF << 48)


def test_another_parser_writes_the_same_meters_and_reads_a_rule_with_one() -> None:
    for is_new, command in ((True, of.OFPMC_ADD), (False, of.OFPMC_MODIFY)):
        bands = [parser.OFPMeterBandDrop(5000, 500)]
        flags = of.OFPMF_KBPS | of.OFPMF_BURST | of.OFPMF_STATS
        expected = parser.OFPMeterMod(VERSION_1_3, command, flags, 193, bands)
        expected.set_xid(1)
        expected.serialize()
        assert encode(SetMeter(193, 5000, 500, is_new), 1) == bytes(expected.buf)
    request = parser.OFPMeterStatsRequest(VERSION_1_3, 0, of.OFPM_ALL)
    request.set_xid(1)
    request.serialize()
    assert encode(Request(RequestKind.METER_COUNTERS), 1) == bytes(request.buf)
    meter, actions = read(encode(AddRule(replace(RULE, meter=193)), 1)).instructions
    assert meter.meter_id == 193 and actions.actions[0].port == 3


@pytest.mark.parametrize("role", list(Role))
def test_another_parser_writes_the_same_role_requests(role: Role) -> None:
    expected = parser.OFPRoleRequest(VERSION_1_3, role, 1 << 62 | 5)
    expected.set_xid(1)
    expected.serialize()
    assert encode(RoleRequest(role, 1 << 62 | 5), 1) == bytes(expected.buf)


def test_roles_are_answered_and_refused() -> None:
    session = handshaken()
    session.send(RoleRequest(Role.MASTER, 9))
    reply = struct.pack(of.OFP_ROLE_REQUEST_PACK_STR, 2, 9)
    assert session.receive(framed(of.OFPT_ROLE_REPLY, xid_of(session), reply), 0.0) == [RoleReply(Role.MASTER, 9)]
    assert session.receive(framed(of.OFPT_ROLE_REPLY, 12345, reply), 0.0) == [], "of nothing that was asked"
    session.send(RoleRequest(Role.NOCHANGE))
    none = struct.pack(of.OFP_ROLE_REQUEST_PACK_STR, 1, (1 << 64) - 1)
    assert session.receive(framed(of.OFPT_ROLE_REPLY, xid_of(session), none), 0.0) == [RoleReply(Role.EQUAL, None)]
    session.send(RoleRequest(Role.MASTER, 8))
    stale = struct.pack("!HH", of.OFPET_ROLE_REQUEST_FAILED, of.OFPRRFC_STALE)
    (refused,) = session.receive(framed(of.OFPT_ERROR, xid_of(session), stale), 0.0)
    assert refused.is_not_master and refused.request == RoleRequest(Role.MASTER, 8)  # type: ignore[union-attr]
    session.send(RoleRequest(Role.MASTER, 8))
    unsupported = struct.pack("!HH", of.OFPET_ROLE_REQUEST_FAILED, of.OFPRRFC_UNSUP)
    (refused,) = session.receive(framed(of.OFPT_ERROR, xid_of(session), unsupported), 0.0)
    assert not refused.is_not_master  # type: ignore[union-attr]
    session.send(AddRule(RULE))
    slave = struct.pack("!HH", of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE)
    (refused,) = session.receive(framed(of.OFPT_ERROR, xid_of(session), slave), 0.0)
    assert refused.is_not_master and refused.request == AddRule(RULE)  # type: ignore[union-attr]
    session.send(RoleRequest(Role.NOCHANGE))
    with pytest.raises(ClosedError, match="the role 77"):
        session.receive(
            framed(of.OFPT_ROLE_REPLY, xid_of(session), struct.pack(of.OFP_ROLE_REQUEST_PACK_STR, 77, 1)), 0.0
        )


def test_questions_about_roles_do_not_pile_up_without_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.openflow.session.PENDING_MAX", 3)
    session = handshaken()
    for _ in range(20):
        session.send(RoleRequest(Role.NOCHANGE))
        session.receive(
            framed(of.OFPT_ROLE_REPLY, xid_of(session), struct.pack(of.OFP_ROLE_REQUEST_PACK_STR, 3, 1)), 0.0
        )


def test_meter_statistics_are_decoded_and_malformed_ones_are_refused() -> None:
    def meter(number: int, length: int) -> bytes:
        band = struct.pack(of.OFP_METER_BAND_STATS_PACK_STR, 1, 100)
        return struct.pack(of.OFP_METER_STATS_PACK_STR, number, length, 2, 10, 9000, 7, 500_000_000) + band

    head = struct.pack(of.OFP_MULTIPART_REPLY_PACK_STR, of.OFPMP_METER, 0)
    body = head + meter(193, 56) + meter(194, 56)
    assert read(framed(of.OFPT_MULTIPART_REPLY, 1, body)).body[1].byte_in_count == 9000, "as os-ken reads it"
    found = decode(of.OFPT_MULTIPART_REPLY, body, RequestKind.METER_COUNTERS)
    assert found == MeterCounters((MeterCounter(193, 9000, 7.5), MeterCounter(194, 9000, 7.5)))
    for wrong in (head + meter(193, 0), head + meter(193, 57), head + meter(193, 56)[:30]):
        with pytest.raises(MalformedError):
            decode(of.OFPT_MULTIPART_REPLY, wrong, RequestKind.METER_COUNTERS)


def test_a_packet_in_is_decoded_with_any_match_fields() -> None:
    match = bytearray()
    parser.OFPMatch(in_port=3, metadata=7, tunnel_id=5).serialize(match, 0)
    body = struct.pack("!IHBBQ", of.OFP_NO_BUFFER, 5, 0, 0, 1) + bytes(match) + b"\0\0frame"
    assert read(framed(of.OFPT_PACKET_IN, 1, body)).data == b"frame", "as os-ken reads it"
    assert decode(of.OFPT_PACKET_IN, body) == PacketIn(3, b"frame")


def test_nothing_long_is_remembered_of_what_switches_send_or_have() -> None:
    """Thousands of matches of 60 kB, or of floods out of thousands of ports, would take hundreds of megabytes."""
    caches = codec._fields, codec._instructions
    before = [cache.cache_info().currsize for cache in caches]
    fields = struct.pack("!II", 0x8000_0004, 3) + 500 * struct.pack("!IH", 0x8000_0A02, 0x0800)
    match = struct.pack("!HH", of.OFPMT_OXM, 4 + len(fields)) + fields + bytes(-(4 + len(fields)) % 8)
    body = struct.pack("!IHBBQ", of.OFP_NO_BUFFER, 5, 0, 0, 1) + match + b"\0\0frame"
    assert decode(of.OFPT_PACKET_IN, body) == PacketIn(3, b"frame")
    flood = read(encode(AddRule(Rule(Match(), 0, 1, tuple(range(1, 3001)))), 1))
    assert [action.port for action in flood.instructions[0].actions] == list(range(1, 3001))
    assert [cache.cache_info().currsize for cache in caches] == before


def test_a_flow_removed_message_is_decoded() -> None:
    body = struct.pack(of.OFP_FLOW_REMOVED_PACK_STR0, 7, 1, of.OFPRR_IDLE_TIMEOUT, 0, 1, 0, 20, 60, 5, 600)
    body += struct.pack("!HH4x", of.OFPMT_OXM, 4)
    assert read(framed(of.OFPT_FLOW_REMOVED, 1, body)).byte_count == 600, "as os-ken reads it"
    assert decode(of.OFPT_FLOW_REMOVED, body) == RuleRemoved(7, Why.IDLE, 5, 600)


def flow_statistics(rule: Rule, packets: int = 5) -> bytes:
    """One entry of a flow statistics reply, with the match and instructions of our flow mod."""
    rest = encode(AddRule(rule), 1)[48:]
    head = struct.pack(
        of.OFP_FLOW_STATS_0_PACK_STR,
        48 + len(rest),
        0,
        7,
        500_000_000,
        rule.priority,
        rule.idle_s,
        rule.hard_s,
        of.OFPFF_SEND_FLOW_REM if rule.notify else 0,
        rule.cookie,
        packets,
        600,
    )
    return head + rest


def test_flow_statistics_are_decoded_as_rules_or_counters() -> None:
    body = (
        struct.pack("!HH4x", of.OFPMP_FLOW, 0)
        + flow_statistics(RULE)
        + flow_statistics(Rule(Match(), 0, 2, (CONTROLLER,)))
        + flow_statistics(replace(RULE, meter=193))
    )
    rules = decode(of.OFPT_MULTIPART_REPLY, body, RequestKind.RULES)
    assert isinstance(rules, RuleList) and rules.rules[0] == RULE and rules.rules[1].out == (CONTROLLER,)
    assert rules.rules[2] == replace(RULE, meter=193)
    assert rules.counters[0].age_s == 7.5
    counters = decode(of.OFPT_MULTIPART_REPLY, body, RequestKind.RULE_COUNTERS)
    assert isinstance(counters, RuleCounters) and counters.counters == rules.counters
    message = read(framed(of.OFPT_MULTIPART_REPLY, 1, body))
    assert [entry.cookie for entry in message.body] == [rule.cookie for rule in rules.rules], "as os-ken reads it"


def test_ports_and_their_counters_are_decoded() -> None:
    ports = decode(of.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", of.OFPMP_PORT_DESC, 0) + PORT_BYTES, RequestKind.PORTS)
    assert ports == PortList((PortState(1, "s1-eth1", True, 10**10),))
    numbers = struct.pack(of.OFP_PORT_STATS_PACK_STR, 1, *(11, 12, 1300, 1400), *range(8), 1, 0)
    body = struct.pack("!HH4x", of.OFPMP_PORT_STATS, 0) + numbers
    counters = decode(of.OFPT_MULTIPART_REPLY, body, RequestKind.PORT_COUNTERS)
    assert isinstance(counters, PortCounters)
    assert (counters.counters[0].sent_bytes, counters.counters[0].received_bytes) == (1400, 1300)


def handshaken(now: float = 0.0) -> Session:
    session = Session(now)
    session.receive(framed(of.OFPT_HELLO, 1), now)
    features = struct.pack("!QIBB2xII", 7, 0, 254, 0, 0, 0)
    assert session.receive(framed(of.OFPT_FEATURES_REPLY, 2, features), now) == [SwitchUp(7)]
    session.outgoing.clear()
    return session


def xid_of(session: Session) -> int:
    """The xid of the last message sent."""
    at = last = 0
    while at < len(session.outgoing):
        last = at
        at += HEADER.unpack_from(session.outgoing, at)[2]
    return int(HEADER.unpack_from(session.outgoing, last)[3])


def test_a_switch_with_another_version_gets_an_error() -> None:
    session = Session(0.0)
    with pytest.raises(ClosedError, match="set it to OpenFlow13"):
        session.receive(struct.pack("!BBHI", 1, of.OFPT_HELLO, 8, 1), 0.0)
    assert read(bytes(session.outgoing[16:])).type == of.OFPET_HELLO_FAILED
    newer = Session(0.0)
    newer.receive(struct.pack("!BBHIHHI", 6, of.OFPT_HELLO, 16, 1, 1, 8, 1 << 4 | 1 << 6), 0.0)
    only_newer = Session(0.0)
    with pytest.raises(ClosedError):
        only_newer.receive(struct.pack("!BBHIHHI", 6, of.OFPT_HELLO, 16, 1, 1, 8, 1 << 6), 0.0)


def test_echoes_are_answered_and_requested_and_a_silent_switch_is_dead() -> None:
    session = handshaken()
    session.receive(framed(of.OFPT_ECHO_REQUEST, 77, b"data"), 1.0)
    assert bytes(session.outgoing) == framed(of.OFPT_ECHO_REPLY, 77, b"data")
    session.outgoing.clear()
    assert session.poll(1.0) == 1.0 + ECHO_AFTER_S and not session.outgoing
    session.poll(1.0 + ECHO_AFTER_S)
    assert HEADER.unpack_from(session.outgoing)[1] == of.OFPT_ECHO_REQUEST
    with pytest.raises(ClosedError, match="silent"):
        session.poll(1.0 + DEAD_AFTER_S)


def test_an_unfinished_handshake_ends_the_connection() -> None:
    session = Session(0.0)
    assert session.poll(0.0) == HANDSHAKE_S
    with pytest.raises(ClosedError, match="handshake"):
        session.poll(HANDSHAKE_S)


def test_errors_name_the_request_and_barriers_confirm_earlier_messages() -> None:
    session = handshaken()
    session.send(AddRule(RULE))
    refused = xid_of(session)
    session.send(BarrierRequest(5))
    barrier = xid_of(session)
    full = struct.pack("!HH", of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_TABLE_FULL)
    (event,) = session.receive(framed(of.OFPT_ERROR, refused, full), 0.0)
    assert isinstance(event, SwitchError) and event.is_table_full and event.request == AddRule(RULE)
    assert session.receive(framed(of.OFPT_BARRIER_REPLY, barrier), 0.0) == [BarrierReply(5)]
    (event,) = session.receive(framed(of.OFPT_ERROR, refused, full), 0.0)
    assert isinstance(event, SwitchError) and event.request is None, "what was confirmed is forgotten"
    assert not session._pending


def test_a_multipart_reply_is_one_message() -> None:
    session = handshaken()
    session.send(Request(RequestKind.RULE_COUNTERS))
    xid = xid_of(session)
    first = struct.pack("!HH4x", of.OFPMP_FLOW, of.OFPMPF_REPLY_MORE) + flow_statistics(RULE, 1)
    last = struct.pack("!HH4x", of.OFPMP_FLOW, 0) + flow_statistics(RULE, 2)
    assert session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, first), 0.0) == []
    (event,) = session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, last), 0.0)
    assert isinstance(event, RuleCounters) and [counter.packets for counter in event.counters] == [1, 2]
    assert session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, last), 0.0) == [], "nobody asked for another"


def test_messages_may_arrive_in_any_pieces() -> None:
    stream = framed(of.OFPT_PACKET_IN, 1, packet_in(3, b"frame")) * 5
    for size in (1, 7, 50, 1000):
        session = handshaken()
        events = [event for at in range(0, len(stream), size) for event in session.receive(stream[at : at + size], 0.0)]
        assert events == [PacketIn(3, b"frame")] * 5


@pytest.mark.parametrize("seed", range(20))
def test_no_input_does_more_than_end_its_connection(seed: int) -> None:
    """Messages with a few bytes changed, and noise: events or ClosedError, no other error, always in finite time."""
    chance = random.Random(seed)
    bodies = {
        of.OFPT_PACKET_IN: packet_in(3, b"frame" * 10),
        of.OFPT_PORT_STATUS: bytes(8) + PORT_BYTES,
        of.OFPT_FLOW_REMOVED: bytes(48),
        of.OFPT_MULTIPART_REPLY: struct.pack("!HH4x", of.OFPMP_FLOW, 0) + flow_statistics(RULE) * 3,
        of.OFPT_ERROR: bytes(12),
        of.OFPT_HELLO: struct.pack("!HHI", 1, 8, 16),
        of.OFPT_BARRIER_REPLY: b"",
        of.OFPT_ECHO_REQUEST: b"x",
    }
    for _ in range(200):
        session = handshaken() if chance.random() < 0.9 else Session(0.0)
        if session.is_ready:
            session.send(Request(chance.choice(list(RequestKind))))
        kind, body = chance.choice(list(bodies.items()))
        message = bytearray(framed(kind, xid_of(session), body))
        for _ in range(chance.randrange(4)):
            message[chance.randrange(8, len(message)) if len(message) > 8 else 1] = chance.randrange(256)
        try:
            session.receive(bytes(message), 0.0)
            session.receive(chance.randbytes(40), 0.0)
        except ClosedError:
            pass


def test_lengths_of_zero_terminate() -> None:
    with pytest.raises(ClosedError):
        Session(0.0).receive(struct.pack("!BBHIHH", 4, of.OFPT_HELLO, 12, 1, 1, 0), 0.0)
    with pytest.raises(ClosedError):
        handshaken().receive(struct.pack("!BBHI", 4, of.OFPT_PACKET_IN, 0, 1), 0.0)
    with pytest.raises(MalformedError):
        decode(of.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", of.OFPMP_FLOW, 0) + bytes(48), RequestKind.RULES)


def test_a_switch_without_replies_does_not_grow_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.openflow.session.PENDING_MAX", 100)
    session = handshaken()
    for _ in range(1000):
        session.send(PacketOut((1,), b"frames are not remembered"))
    with pytest.raises(ClosedError, match="unanswered"):
        for token in range(101):
            session.send(BarrierRequest(token))


def test_a_switch_with_more_ports_than_a_rule_can_have_ends_only_its_own_connection(tmp_path: Path) -> None:
    """Otherwise what the turn has for other switches would be lost, and never be confirmed."""
    encode(AddRule(Rule(Match(), 0, 0, out=tuple(range(1, PORTS_MAX + 1)), table=1)), 1)
    port = struct.pack(of.OFP_PORT_PACK_STR, 1, bytes(6), b"", *[0] * 8)
    for count in (PORTS_MAX, PORTS_MAX + 1):
        list_of_ports = struct.pack("!HH4x", of.OFPMP_PORT_DESC, 0) + port * count
        if count > PORTS_MAX:
            with pytest.raises(MalformedError, match="4001 ports, above 4000"):
                decode(of.OFPT_MULTIPART_REPLY, list_of_ports, RequestKind.PORTS)
        else:
            decoded = decode(of.OFPT_MULTIPART_REPLY, list_of_ports, RequestKind.PORTS)
            assert isinstance(decoded, PortList) and len(decoded.ports) == PORTS_MAX
    flood = AddRule(Rule(Match(), 0, 0, out=tuple(range(1, 5000)), table=1))
    with pytest.raises(ClosedError, match="cannot be encoded"):
        handshaken().send(flood)

    async def scenario() -> None:
        told: list[Event] = []
        shell = Shell(Settings(), Policy(), Hosts(), [f"unix:{tmp_path}/of.sock"], told.append)
        await shell.open()
        switches = [await asyncio.open_unix_connection(f"{tmp_path}/of.sock") for _ in range(2)]
        for number, (_, writer) in enumerate(switches, start=1):
            writer.write(framed(of.OFPT_HELLO, 1))
            writer.write(framed(of.OFPT_FEATURES_REPLY, 2, struct.pack("!QIBB2xII", number, 0, 254, 0, 0, 0)))
        while shell.switches < 2:
            await asyncio.sleep(0.01)
        shell._send({"s1": [flood], "s2": [PacketOut((1,), b"for the other one")]})
        assert b"for the other one" in await asyncio.wait_for(switches[1][0].readuntil(b"for the other one"), 5)
        await asyncio.wait_for(switches[0][0].read(), 5)
        while shell.switches == 2:
            await asyncio.sleep(0.01)
        assert any("cannot be encoded" in event.text for event in told if event.kind == "switch lost")
        switches[1][1].close()
        await shell.close()

    asyncio.run(scenario())


def test_a_channel_with_invalid_input_ends_and_others_continue(tmp_path: Path) -> None:
    async def scenario() -> None:
        events_seen: list[object] = []
        closed: list[str] = []
        listener = Listener(
            f"unix:{tmp_path}/of.sock", lambda _, events: events_seen.extend(events), lambda _, why: closed.append(why)
        )
        await listener.open()
        assert (tmp_path / "of.sock").stat().st_mode & 0o777 == 0o600
        good = await asyncio.open_unix_connection(f"{tmp_path}/of.sock")
        bad = await asyncio.open_unix_connection(f"{tmp_path}/of.sock")
        bad[1].write(b"GET / HTTP/1.1\r\n\r\n")
        good[1].write(framed(of.OFPT_HELLO, 1))
        await asyncio.wait_for(bad[0].read(), 5)
        good[1].write(framed(of.OFPT_FEATURES_REPLY, 2, struct.pack("!QIBB2xII", 7, 0, 254, 0, 0, 0)))
        while not events_seen:
            await asyncio.sleep(0.01)
        assert events_seen == [SwitchUp(7)] and len(closed) == 1 and "it sent" in closed[0]
        for reader, writer in (good, bad):
            writer.close()
            await reader.read()
        await listener.close()
        assert not (tmp_path / "of.sock").exists()

    asyncio.run(scenario())


def test_a_switch_that_does_not_read_does_not_keep_the_controller_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped; that it is dead would be noticed after 15 s."""
    monkeypatch.setattr("barewire.sdn.openflow.channel.END_S", 0.1)

    async def scenario() -> float:
        channels: list[Channel] = []
        listener = Listener(f"unix:{tmp_path}/of.sock", lambda channel, _: channels.append(channel), lambda *_: None)
        await listener.open()
        with socket.socket(socket.AF_UNIX) as stopped:
            stopped.connect(f"{tmp_path}/of.sock")
            stopped.sendall(framed(of.OFPT_HELLO, 1))
            stopped.sendall(framed(of.OFPT_FEATURES_REPLY, 2, struct.pack("!QIBB2xII", 7, 0, 254, 0, 0, 0)))
            while not channels:
                await asyncio.sleep(0.01)
            channels[0].send([PacketOut((1,), bytes(1000))] * 2000)
            began = time.monotonic()
            await listener.close()
            return time.monotonic() - began

    assert asyncio.run(scenario()) < 5


def test_a_switch_that_connects_again_takes_over_from_its_old_connection(tmp_path: Path) -> None:
    """The old one is no connection of an unknown switch, and what it still says is ignored."""

    async def scenario() -> None:
        told: list[Event] = []
        shell = Shell(Settings(), Policy(), Hosts(), [f"unix:{tmp_path}/of.sock"], told.append)
        await shell.open()
        hello = framed(of.OFPT_HELLO, 1)
        features = framed(of.OFPT_FEATURES_REPLY, 2, struct.pack("!QIBB2xII", 7, 0, 254, 0, 0, 0))
        old, new = [await asyncio.open_unix_connection(f"{tmp_path}/of.sock") for _ in range(2)]
        old[1].write(hello + features)
        while not shell.switches:
            await asyncio.sleep(0.01)
        new[1].write(hello + features)
        await asyncio.wait_for(old[0].read(), 5)
        await asyncio.sleep(0.05)
        assert shell.switches == 1
        assert [(event.kind, "it connected again" in event.text) for event in told] == [("switch lost", True)]
        new[1].close()
        await asyncio.wait_for(new[0].read(), 5)
        await shell.close()

    asyncio.run(scenario())


def test_invalid_listening_addresses_are_refused_with_the_remedy(tmp_path: Path) -> None:
    async def scenario() -> None:
        for place in ("6653", "tcp:6653", "tcp:1.2.3.4:99999", "unix:", "udp:1.2.3.4:5"):
            with pytest.raises(WrongUse, match="unix:PATH or tcp:ADDRESS:PORT"):
                Listener(place, lambda *_: None, lambda *_: None)
        file = tmp_path / "file"
        file.write_text("precious")
        with pytest.raises(MachineCannot, match="is a file"):
            await Listener(f"unix:{file}", lambda *_: None, lambda *_: None).open()
        assert file.read_text() == "precious"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "taken"))
            listener.listen()
            with pytest.raises(MachineCannot, match="in use"):
                await Listener(f"unix:{tmp_path}/taken", lambda *_: None, lambda *_: None).open()

    asyncio.run(scenario())


def packet_in(port: int, frame: bytes) -> bytes:
    match = struct.pack("!HHII4x", of.OFPMT_OXM, 12, 0x8000_0004, port)
    return struct.pack("!IHBBQ", of.OFP_NO_BUFFER, len(frame), 0, 0, 1) + match + b"\0\0" + frame
