# SPDX-License-Identifier: Apache-2.0 OR MIT
"""OpenFlow on the wire: what we send is what os-ken's own parser reads, and no bytes of a switch do harm."""

import asyncio
import random
import socket
import struct
from pathlib import Path

import pytest
from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from barewire.errors import MachineCannot, WrongUse
from barewire.sdn.openflow.channel import Listener
from barewire.sdn.openflow.codec import HEADER, MalformedError, decode, encode, framed
from barewire.sdn.openflow.messages import (
    CONTROLLER,
    Ask,
    Confirm,
    Confirmed,
    DeleteRule,
    FrameIn,
    Match,
    PortCounters,
    PortIs,
    PortsAre,
    Question,
    Refused,
    Rule,
    RuleCounters,
    RuleGone,
    RulesAre,
    SendFrame,
    SetRule,
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
    """As os-ken reads it."""
    version, kind, length, xid = HEADER.unpack_from(message)
    assert length == len(message)
    return ofproto_parser.msg(VERSION_1_3, version, kind, length, xid, message)


def test_rules_are_what_another_parser_reads() -> None:
    seen = read(encode(SetRule(RULE), 9))
    assert isinstance(seen, parser.OFPFlowMod) and seen.command == of.OFPFC_ADD and seen.xid == 9
    assert (seen.cookie, seen.priority, seen.idle_timeout, seen.hard_timeout) == (RULE.cookie, 300, 20, 60)
    assert seen.flags == of.OFPFF_SEND_FLOW_REM and seen.buffer_id == of.OFP_NO_BUFFER
    assert dict(seen.match.items()) == {
        "eth_src": "02:ba:7e:00:00:01",
        "eth_dst": "02:ba:7e:00:00:02",
        "eth_type": 0x0800,
        "ip_proto": 6,
        "tcp_src": 1000,
        "tcp_dst": 2000,
    }
    ((action,),) = [instruction.actions for instruction in seen.instructions]
    assert action.port == 3
    deleted = read(encode(DeleteRule(TCP_MATCH, 300, RULE.cookie, 0xFF), 1))
    assert (deleted.command, deleted.cookie_mask, deleted.out_port) == (of.OFPFC_DELETE_STRICT, 0xFF, of.OFPP_ANY)
    dropped = read(encode(SetRule(Rule(Match(in_port=4), 250, 1)), 1))
    assert dropped.instructions == [] and dict(dropped.match.items()) == {"in_port": 4}


def test_frames_questions_and_barriers_are_what_another_parser_reads() -> None:
    outputs = [parser.OFPActionOutput(port, of.OFPCML_NO_BUFFER) for port in (1, 2)]
    theirs = parser.OFPPacketOut(VERSION_1_3, of.OFP_NO_BUFFER, CONTROLLER, outputs, b"frame")
    theirs.set_xid(1)
    theirs.serialize()
    assert encode(SendFrame((1, 2), b"frame"), 1) == bytes(theirs.buf)
    barrier = parser.OFPBarrierRequest(VERSION_1_3)
    barrier.set_xid(1)
    barrier.serialize()
    assert encode(Confirm(5), 1) == bytes(barrier.buf)
    asked = encode(Ask(Question.RULES, 0xBA7E << 48, 0xFFFF << 48), 1)
    body = struct.unpack_from(of.OFP_FLOW_STATS_REQUEST_0_PACK_STR, asked, 16)
    assert body[-2:] == (0xBA7E << 48, 0xFFFF << 48)


def test_a_frame_that_comes_up_is_read_whatever_is_matched_beside_its_port() -> None:
    match = bytearray()
    parser.OFPMatch(in_port=3, metadata=7, tunnel_id=5).serialize(match, 0)
    body = struct.pack("!IHBBQ", of.OFP_NO_BUFFER, 5, 0, 0, 1) + bytes(match) + b"\0\0frame"
    assert read(framed(of.OFPT_PACKET_IN, 1, body)).data == b"frame", "as os-ken reads it"
    assert decode(of.OFPT_PACKET_IN, body) == FrameIn(3, b"frame")


def test_a_rule_that_has_gone_is_read() -> None:
    body = struct.pack(of.OFP_FLOW_REMOVED_PACK_STR0, 7, 1, of.OFPRR_IDLE_TIMEOUT, 0, 1, 0, 20, 60, 5, 600)
    body += struct.pack("!HH4x", of.OFPMT_OXM, 4)
    assert read(framed(of.OFPT_FLOW_REMOVED, 1, body)).byte_count == 600, "as os-ken reads it"
    assert decode(of.OFPT_FLOW_REMOVED, body) == RuleGone(7, Why.IDLE, 5, 600)


def flow_statistics(rule: Rule, packets: int = 5) -> bytes:
    """One entry of an answer about flows, around the match and instructions of our own flow mod."""
    rest = encode(SetRule(rule), 1)[48:]
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


def test_answers_about_rules_are_read_whole_or_as_counters() -> None:
    body = (
        struct.pack("!HH4x", of.OFPMP_FLOW, 0)
        + flow_statistics(RULE)
        + flow_statistics(Rule(Match(), 0, 2, (CONTROLLER,)))
    )
    rules = decode(of.OFPT_MULTIPART_REPLY, body, Question.RULES)
    assert isinstance(rules, RulesAre) and rules.rules[0] == RULE and rules.rules[1].out == (CONTROLLER,)
    assert rules.counters[0].age_s == 7.5
    counters = decode(of.OFPT_MULTIPART_REPLY, body, Question.RULE_COUNTERS)
    assert isinstance(counters, RuleCounters) and counters.counters == rules.counters
    seen = read(framed(of.OFPT_MULTIPART_REPLY, 1, body))
    assert [entry.cookie for entry in seen.body] == [rule.cookie for rule in rules.rules], "as os-ken reads it"


def test_ports_and_their_counters_are_read() -> None:
    ports = decode(of.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", of.OFPMP_PORT_DESC, 0) + PORT_BYTES, Question.PORTS)
    assert ports == PortsAre((PortIs(1, "s1-eth1", True, 10**10),))
    numbers = struct.pack(of.OFP_PORT_STATS_PACK_STR, 1, *(11, 12, 1300, 1400), *range(8), 1, 0)
    body = struct.pack("!HH4x", of.OFPMP_PORT_STATS, 0) + numbers
    counters = decode(of.OFPT_MULTIPART_REPLY, body, Question.PORT_COUNTERS)
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
    """The number of the last message sent."""
    at = last = 0
    while at < len(session.outgoing):
        last = at
        at += HEADER.unpack_from(session.outgoing, at)[2]
    return int(HEADER.unpack_from(session.outgoing, last)[3])


def test_a_switch_that_speaks_another_version_is_told_so() -> None:
    session = Session(0.0)
    with pytest.raises(ClosedError, match="set it to OpenFlow13"):
        session.receive(struct.pack("!BBHI", 1, of.OFPT_HELLO, 8, 1), 0.0)
    assert read(bytes(session.outgoing[16:])).type == of.OFPET_HELLO_FAILED
    newer = Session(0.0)
    newer.receive(struct.pack("!BBHIHHI", 6, of.OFPT_HELLO, 16, 1, 1, 8, 1 << 4 | 1 << 6), 0.0)
    only_newer = Session(0.0)
    with pytest.raises(ClosedError):
        only_newer.receive(struct.pack("!BBHIHHI", 6, of.OFPT_HELLO, 16, 1, 1, 8, 1 << 6), 0.0)


def test_echoes_are_answered_and_asked_for_and_a_silent_switch_is_dead() -> None:
    session = handshaken()
    session.receive(framed(of.OFPT_ECHO_REQUEST, 77, b"data"), 1.0)
    assert bytes(session.outgoing) == framed(of.OFPT_ECHO_REPLY, 77, b"data")
    session.outgoing.clear()
    assert session.poll(1.0) == 1.0 + ECHO_AFTER_S and not session.outgoing
    session.poll(1.0 + ECHO_AFTER_S)
    assert HEADER.unpack_from(session.outgoing)[1] == of.OFPT_ECHO_REQUEST
    with pytest.raises(ClosedError, match="silent"):
        session.poll(1.0 + DEAD_AFTER_S)


def test_a_handshake_that_does_not_end_ends_the_connection() -> None:
    session = Session(0.0)
    assert session.poll(0.0) == HANDSHAKE_S
    with pytest.raises(ClosedError, match="handshake"):
        session.poll(HANDSHAKE_S)


def test_errors_name_the_request_and_barriers_confirm_what_was_before_them() -> None:
    session = handshaken()
    session.send(SetRule(RULE))
    refused = xid_of(session)
    session.send(Confirm(5))
    barrier = xid_of(session)
    full = struct.pack("!HH", of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_TABLE_FULL)
    (event,) = session.receive(framed(of.OFPT_ERROR, refused, full), 0.0)
    assert isinstance(event, Refused) and event.is_table_full and event.request == SetRule(RULE)
    assert session.receive(framed(of.OFPT_BARRIER_REPLY, barrier), 0.0) == [Confirmed(5)]
    (event,) = session.receive(framed(of.OFPT_ERROR, refused, full), 0.0)
    assert isinstance(event, Refused) and event.request is None, "what was confirmed is forgotten"
    assert not session._pending


def test_an_answer_in_parts_is_one_answer() -> None:
    session = handshaken()
    session.send(Ask(Question.RULE_COUNTERS))
    xid = xid_of(session)
    first = struct.pack("!HH4x", of.OFPMP_FLOW, of.OFPMPF_REPLY_MORE) + flow_statistics(RULE, 1)
    last = struct.pack("!HH4x", of.OFPMP_FLOW, 0) + flow_statistics(RULE, 2)
    assert session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, first), 0.0) == []
    (event,) = session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, last), 0.0)
    assert isinstance(event, RuleCounters) and [one.packets for one in event.counters] == [1, 2]
    assert session.receive(framed(of.OFPT_MULTIPART_REPLY, xid, last), 0.0) == [], "nobody asked for another"


def test_messages_may_come_in_any_pieces() -> None:
    stream = framed(of.OFPT_PACKET_IN, 1, packet_in(3, b"frame")) * 5
    for size in (1, 7, 50, 1000):
        session = handshaken()
        events = [event for at in range(0, len(stream), size) for event in session.receive(stream[at : at + size], 0.0)]
        assert events == [FrameIn(3, b"frame")] * 5


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_do_more_than_end_their_own_connection(seed: int) -> None:
    """Whole messages with a few bytes changed, and noise: events, or ClosedError; never another error, nor for ever."""
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
            session.send(Ask(chance.choice(list(Question))))
        kind, body = chance.choice(list(bodies.items()))
        message = bytearray(framed(kind, xid_of(session), body))
        for _ in range(chance.randrange(4)):
            message[chance.randrange(8, len(message)) if len(message) > 8 else 1] = chance.randrange(256)
        try:
            session.receive(bytes(message), 0.0)
            session.receive(chance.randbytes(40), 0.0)
        except ClosedError:
            pass


def test_lengths_of_zero_do_not_go_on_for_ever() -> None:
    with pytest.raises(ClosedError):
        Session(0.0).receive(struct.pack("!BBHIHH", 4, of.OFPT_HELLO, 12, 1, 1, 0), 0.0)
    with pytest.raises(ClosedError):
        handshaken().receive(struct.pack("!BBHI", 4, of.OFPT_PACKET_IN, 0, 1), 0.0)
    with pytest.raises(MalformedError):
        decode(of.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", of.OFPMP_FLOW, 0) + bytes(48), Question.RULES)


def test_a_switch_that_answers_nothing_does_not_grow_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.sdn.openflow.session.PENDING_MAX", 100)
    session = handshaken()
    for _ in range(1000):
        session.send(SendFrame((1,), b"frames are not remembered"))
    with pytest.raises(ClosedError, match="unanswered"):
        for token in range(101):
            session.send(Confirm(token))


def test_a_channel_that_sends_nonsense_ends_and_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard: list[object] = []
        closed: list[str] = []
        listener = Listener(
            f"unix:{tmp_path}/of.sock", lambda _, events: heard.extend(events), lambda _, why: closed.append(why)
        )
        await listener.open()
        assert (tmp_path / "of.sock").stat().st_mode & 0o777 == 0o600
        good = await asyncio.open_unix_connection(f"{tmp_path}/of.sock")
        bad = await asyncio.open_unix_connection(f"{tmp_path}/of.sock")
        bad[1].write(b"GET / HTTP/1.1\r\n\r\n")
        good[1].write(framed(of.OFPT_HELLO, 1))
        await asyncio.wait_for(bad[0].read(), 5)
        good[1].write(framed(of.OFPT_FEATURES_REPLY, 2, struct.pack("!QIBB2xII", 7, 0, 254, 0, 0, 0)))
        while not heard:
            await asyncio.sleep(0.01)
        assert heard == [SwitchUp(7)] and len(closed) == 1 and "it sent" in closed[0]
        for reader, writer in (good, bad):
            writer.close()
            await reader.read()
        await listener.close()
        assert not (tmp_path / "of.sock").exists()

    asyncio.run(scenario())


def test_places_that_cannot_be_listened_at_say_what_to_do(tmp_path: Path) -> None:
    async def scenario() -> None:
        for place in ("6653", "tcp:6653", "tcp:1.2.3.4:99999", "unix:", "udp:1.2.3.4:5"):
            with pytest.raises(WrongUse, match="write unix:PATH or tcp:ADDRESS:PORT"):
                Listener(place, lambda *_: None, lambda *_: None)
        file = tmp_path / "file"
        file.write_text("precious")
        with pytest.raises(MachineCannot, match="is a file"):
            await Listener(f"unix:{file}", lambda *_: None, lambda *_: None).open()
        assert file.read_text() == "precious"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(tmp_path / "taken"))
            other.listen()
            with pytest.raises(MachineCannot, match="in use"):
                await Listener(f"unix:{tmp_path}/taken", lambda *_: None, lambda *_: None).open()

    asyncio.run(scenario())


def packet_in(port: int, frame: bytes) -> bytes:
    match = struct.pack("!HHII4x", of.OFPMT_OXM, 12, 0x8000_0004, port)
    return struct.pack("!IHBBQ", of.OFP_NO_BUFFER, len(frame), 0, 0, 1) + match + b"\0\0" + frame
