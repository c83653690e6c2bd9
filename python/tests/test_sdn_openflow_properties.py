# SPDX-License-Identifier: Apache-2.0 OR MIT
"""OpenFlow for any rule and any bytes: rules survive a round trip, and invalid input only ends its session."""

import itertools
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser
from test_sdn_openflow import PORT_BYTES, RULE, flow_statistics, handshaken, packet_in, read, xid_of

from barewire.sdn.openflow import codec
from barewire.sdn.openflow.codec import HEADER, MalformedError, decode, encode, framed
from barewire.sdn.openflow.messages import (
    UNTAGGED,
    AddRule,
    BarrierRequest,
    DeleteRule,
    FromSwitch,
    Match,
    Request,
    RequestKind,
    Rule,
    RuleList,
    ToSwitch,
)
from barewire.sdn.openflow.session import ClosedError, Session

# The same examples in every run, so that a failure is caused by a change and reproducible.
settings.register_profile(
    "barewire", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("barewire")

ports = some.integers(1, 0xFFFF_FF00)
macs = some.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))
shorts = some.integers(0, 0xFFFF)
vlans = some.integers(0, 0xFFF)


@some.composite
def matches(draw: some.DrawFn) -> Match:
    """A valid match of a rule: ports only for TCP and UDP over IP."""
    of_ip = draw(some.sampled_from([None, 0x0800, 0x86DD]))
    protocol = None if of_ip is None else draw(some.sampled_from([None, 6, 17, 1, 58]))
    has_ports = protocol in (6, 17)
    is_icmp6 = (of_ip, protocol) == (0x86DD, 58)
    icmp6_type = draw(some.none() | some.sampled_from([128, 135, 136])) if is_icmp6 else None
    vlan_mask = draw(some.none() | vlans)
    vlan = draw(some.none() | vlans)
    if vlan_mask is None and draw(some.booleans()):
        vlan = UNTAGGED
    return Match(
        in_port=draw(some.none() | ports),
        eth_src=draw(some.none() | macs),
        eth_dst=draw(some.none() | macs),
        eth_type=of_ip or draw(some.none() | some.integers(0, 0xFFFF)),
        ip_proto=protocol,
        source_port=draw(some.none() | shorts) if has_ports else None,
        destination_port=draw(some.none() | shorts) if has_ports else None,
        vlan=vlan if vlan is None or vlan_mask is None else vlan & vlan_mask,
        vlan_mask=None if vlan is None else vlan_mask,
        icmp6_type=icmp6_type,
        nd_target=str(draw(some.ip_addresses(v=6))) if icmp6_type == 135 and draw(some.booleans()) else None,
    )


rules = some.builds(
    Rule,
    matches(),
    shorts,
    some.integers(0, 2**64 - 1),
    some.lists(ports, max_size=4).map(tuple),
    shorts,
    shorts,
    some.booleans(),
    pops_vlan=some.booleans(),
)


@given(rules)
def test_any_rule_survives_a_round_trip_and_another_parser_reads_it(rule: Rule) -> None:
    message = read(encode(AddRule(rule), 1))
    assert (message.cookie, message.priority, message.idle_timeout) == (rule.cookie, rule.priority, rule.idle_s)
    actions = [action for instruction in message.instructions for action in instruction.actions]
    assert [action.type for action in actions[: rule.pops_vlan]] == [of.OFPAT_POP_VLAN] * rule.pops_vlan
    assert tuple(action.port for action in actions[rule.pops_vlan :]) == rule.out
    assert read(encode(DeleteRule(rule.match, rule.priority, rule.cookie, 1), 1)).command == of.OFPFC_DELETE_STRICT
    body = struct.pack(of.OFP_MULTIPART_REPLY_PACK_STR, of.OFPMP_FLOW, 0) + flow_statistics(rule)
    answer = decode(of.OFPT_MULTIPART_REPLY, body, RequestKind.RULES)
    assert isinstance(answer, RuleList) and answer.rules == (rule,)


@given(matches(), some.none() | some.integers(0, 60))
def test_own_match_fields_are_read_as_another_parser_reads_them(match: Match, kept: int | None) -> None:
    """Without it, which takes ten times as long: 10,000 rules of a switch that connects would stop the loop."""
    fields = codec._encoded(match)[4:][: struct.unpack_from("!H", codec._encoded(match), 2)[0] - 4][:kept]
    encoded = struct.pack("!HH", of.OFPMT_OXM, 4 + len(fields)) + fields + bytes(-(4 + len(fields)) % 8)
    found = codec._own_fields(encoded)
    assert found is not None or kept is not None
    if found is not None:
        assert codec._match(found) == codec._match(dict(parser.OFPMatch.parser(encoded, 0).items()))


def multipart(kind: int, body: bytes, flags: int = 0) -> bytes:
    """The body of a reply."""
    return struct.pack(of.OFP_MULTIPART_REPLY_PACK_STR, kind, flags) + body


KINDS = {
    of.OFPT_PACKET_IN: packet_in(3, b"frame")[HEADER.size :],
    of.OFPT_PORT_STATUS: bytes(8) + PORT_BYTES,
    of.OFPT_FLOW_REMOVED: struct.pack(of.OFP_FLOW_REMOVED_PACK_STR0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 6),
    of.OFPT_FEATURES_REPLY: bytes(24),
    of.OFPT_ERROR: bytes(12),
    of.OFPT_BARRIER_REPLY: b"",
    of.OFPT_ECHO_REQUEST: b"there?",
}
ANSWERS = {
    of.OFPMP_PORT_DESC: PORT_BYTES * 2,
    of.OFPMP_FLOW: flow_statistics(RULE) * 2,
    of.OFPMP_PORT_STATS: bytes(of.OFP_PORT_STATS_SIZE) * 2,
}


@some.composite
def bodies(draw: some.DrawFn) -> tuple[int, bytes]:
    """A type and a body: a valid one, with some bytes changed, cut or added."""
    kind = draw(some.sampled_from([*KINDS, *[of.OFPT_MULTIPART_REPLY] * 4]))
    if kind == of.OFPT_MULTIPART_REPLY:
        answer = draw(some.sampled_from(list(ANSWERS)))
        body = bytearray(multipart(answer, ANSWERS[answer], draw(some.sampled_from([0, 0, of.OFPMPF_REPLY_MORE]))))
    else:
        body = bytearray(KINDS[kind])
    for at, value in draw(some.lists(some.tuples(shorts, some.integers(0, 255)), max_size=4)):
        if body:
            body[at % len(body)] = value
    end = draw(some.none() | some.integers(0, len(body)))
    return kind, bytes(body[:end]) + draw(some.binary(max_size=20))


@given(
    bodies() | some.tuples(some.integers(0, 40), some.binary(max_size=200)),
    some.none() | some.sampled_from(RequestKind),
)
def test_any_body_is_decoded_or_refused(body: tuple[int, bytes], question: RequestKind | None) -> None:
    try:
        decode(*body, question)
    except MalformedError as error:
        assert str(error)


def heard(session: Session, pieces: list[bytes]) -> tuple[list[FromSwitch], str | None]:
    """The events of a session for input in these pieces, and the reason of its end, if any."""
    events: list[FromSwitch] = []
    try:
        for piece in pieces:
            events += session.receive(piece, 1.0)
    except ClosedError as error:
        return events, str(error)
    return events, None


def asking() -> tuple[Session, list[int]]:
    """A session with unanswered requests and a barrier, and their xids."""
    session = handshaken()
    numbers = []
    messages: list[ToSwitch] = [*map(Request, RequestKind), AddRule(RULE), BarrierRequest(7)]
    for message in messages:
        session.outgoing.clear()
        session.send(message)
        numbers.append(xid_of(session))
    return session, numbers


@given(some.lists(some.tuples(bodies(), some.integers(0, 6)), max_size=12), some.lists(shorts, max_size=8), some.data())
def test_decoding_does_not_depend_on_the_pieces(
    messages: list[tuple[tuple[int, bytes], int]], cuts: list[int], data: some.DataObject
) -> None:
    """Corrupted replies to all requests, then any bytes: they are decoded, or end only this session."""
    (whole, numbers), (cut, _) = asking(), asking()
    stream = b"".join(framed(kind, ([*numbers, 99])[of_what], body) for (kind, body), of_what in messages)
    stream += data.draw(some.binary(max_size=30))
    ends = sorted({at % (len(stream) + 1) for at in cuts} | {0, len(stream)})
    events, why = heard(whole, [stream])
    pieces_events, why_too = heard(cut, [stream[start:end] for start, end in itertools.pairwise(ends)])
    assert why == why_too
    # Messages before the end in the same piece are not reported.
    assert why is not None or events == pieces_events
    assert len(whole._received) <= 0xFFFF and len(whole._pending) <= len(numbers)
