# SPDX-License-Identifier: Apache-2.0 OR MIT
"""IPv6 and tagged frames on switches in memory: placed by strategies, neighbours found without floods, tags kept."""

import random
from dataclasses import replace

import pytest
from fake_switches import (
    World,
    acquainted,
    address,
    address6,
    advertisement,
    ipv6,
    labelled,
    llc,
    mac,
    matches,
    quiet,
    solicitation,
    tagged,
    tcp,
    tcp6,
    with_destination,
)
from test_sdn_bad_input import arp

from barewire.errors import WrongUse
from barewire.sdn.classify.announcement import Announcement, read
from barewire.sdn.classify.policy import Traffic, parse_policy
from barewire.sdn.controller.frames import LENGTH_FRAME, read_headers
from barewire.sdn.controller.hosts import (
    ADDRESS_FORGOTTEN_S,
    ADDRESSES_PER_HOST_MAX,
    Address,
    Hosts,
    parse_addresses_file,
)
from barewire.sdn.controller.reception import FORGED_S
from barewire.sdn.controller.rules import asked_of, asked_rule, flow_matches, key_of
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import ICMPV6, IPV6, TCP, UDP, UNTAGGED, AddRule, DeleteRule, Match, Rule
from barewire.topology import Port, fat_tree

# Extension headers before TCP: hop-by-hop options, routing, destination options, authentication (12 bytes).
EXTENSIONS = (
    (0, b"\x2b\0" + bytes(6)),
    (43, b"\x3c\0" + bytes(6)),
    (60, b"\x33\0" + bytes(6)),
    (51, b"\x06\x01" + bytes(10)),
)


def receivers(world: World, host: str, frame: bytes) -> list[str]:
    """The hosts to which a frame comes."""
    world.delivered.clear()
    world.send(host, frame)
    world.settle()
    return sorted(host for host, _ in world.delivered)


def others(world: World, host: str) -> list[str]:
    return sorted(set(world.network.hosts) - {host})


# Neighbours


def test_solicitations_for_known_addresses_reach_only_their_owner() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    assert receivers(world, "h1", solicitation("h1", address6("h16"))) == others(world, "h1"), "each other host, once"
    assert receivers(world, "h16", advertisement("h16", "h1")) == ["h1"], "who asked is known by its question"
    asked = solicitation("h9", address6("h16"))
    assert receivers(world, "h9", asked) == ["h16"], "known now: its switches ask only it"
    assert world.delivered == [("h16", with_destination(asked, mac("h16")))]
    world.disconnect(tell=False)
    assert receivers(world, "h5", solicitation("h5", address6("h16"))) == ["h16"], "also without the controller"


def test_who_asks_whether_an_address_is_free_gets_its_owners_answer_and_takes_nothing() -> None:
    world = acquainted()
    receivers(world, "h16", advertisement("h16", "h1"))
    asked = solicitation("h2", address6("h16"), sender="::")
    assert receivers(world, "h2", asked) == ["h16"]
    assert world.controller.hosts.with_address("::") is None
    assert "an address that is another's" not in world.controller.reception.counts
    all_nodes = advertisement("h16", "33:33:00:00:00:01")
    assert receivers(world, "h16", all_nodes) == others(world, "h16"), "its answer is for all"


def test_a_host_has_several_addresses_each_asked_for_at_it_only() -> None:
    world = acquainted()
    addresses = [address6("h16", number) for number in range(4)] + ["fe80::ba:7eff:fe00:10"]
    for one in addresses:
        receivers(world, "h16", advertisement("h16", "h1", one))
    receivers(world, "h16", arp("h16", address("h1")))
    for one in addresses:
        assert receivers(world, "h3", solicitation("h3", one)) == ["h16"]
    assert receivers(world, "h3", arp("h3", address("h16"))) == ["h16"]
    host = world.controller.hosts.by_name["h16"]
    assert {ip for _, ip in host.addresses} == {*addresses, address("h16")}


@pytest.mark.parametrize(
    "forged",
    [
        advertisement("h2", "h1", address6("h16")),
        solicitation("h2", address6("h3"), sender=address6("h16")),
    ],
    ids=["advertised", "asking"],
)
def test_an_address_of_a_present_host_cannot_be_taken_over(forged: bytes) -> None:
    world = acquainted()
    receivers(world, "h16", advertisement("h16", "h1"))
    receivers(world, "h2", forged)
    assert world.controller.hosts.with_address(address6("h16")) is world.controller.hosts.by_name["h16"]
    assert receivers(world, "h2", advertisement("h2", "h1", address6("h16"))) == [], "its ICMPv6 is dropped for a while"
    assert receivers(world, "h2", tcp6("h2", "h1")) == ["h1"], "nothing else of it"
    world.pass_time(FORGED_S + 1)
    assert receivers(world, "h2", advertisement("h2", "h1")) == ["h1"]


def test_what_was_routed_or_names_another_mac_tells_no_address() -> None:
    world = acquainted()
    receivers(world, "h2", advertisement("h2", "h1", hops=64))
    receivers(world, "h3", solicitation("h3", address6("h1"), mac_of="h4"))
    receivers(world, "h5", ipv6("h5", "h1", 17, bytes(20), sender="2001:db8::1"))
    known = world.controller.hosts
    assert [known.with_address(one) for one in (address6("h2"), address6("h3"), "2001:db8::1")] == [None, None, None]
    assert world.controller.reception.counts["malformed"] == 1


def test_an_advertisement_is_heard_also_beside_a_flow_of_other_packets_between_both() -> None:
    world = acquainted()
    echo = ipv6("h16", "h1", ICMPV6, b"\x81\0" + bytes(20))
    world.send("h16", echo)
    world.settle()
    assert world.is_placed("h16", echo)
    receivers(world, "h16", advertisement("h16", "h1"))
    assert world.controller.hosts.with_address(address6("h16")) is not None


def test_neighbours_say_how_to_be_reached_and_are_no_flows() -> None:
    world = acquainted()
    flows = len(world.controller.router.routes)
    receivers(world, "h1", advertisement("h1", "h16"))
    unicast = with_destination(solicitation("h1", address6("h16")), mac("h16"))
    assert receivers(world, "h1", unicast) == ["h16"]
    assert len(world.controller.router.routes) == flows


def test_a_host_that_changes_its_addresses_loses_the_oldest_and_its_rules() -> None:
    world = acquainted()
    host = world.controller.hosts.by_name["h16"]
    before = len(host.addresses)
    every = [f"fd00:9::{number:x}" for number in range(ADDRESSES_PER_HOST_MAX + 2)]
    for one in every[: ADDRESSES_PER_HOST_MAX - before]:
        receivers(world, "h16", advertisement("h16", "h1", one))
    full = dict(host.addresses)
    receivers(world, "h16", advertisement("h16", "h1", every[-2]))
    assert host.addresses == full and len(full) == ADDRESSES_PER_HOST_MAX
    assert receivers(world, "h3", solicitation("h3", every[-2])) == others(world, "h3"), "flooded: nothing is lost"
    host.addresses = {one: seen_s - ADDRESS_FORGOTTEN_S for one, seen_s in full.items()}
    receivers(world, "h16", arp("h16", address("h1")))
    receivers(world, "h16", advertisement("h16", "h1", every[1]))
    receivers(world, "h16", advertisement("h16", "h1", every[-1]))
    (gone,) = full.keys() - host.addresses.keys()
    assert gone.ip not in (every[1], address("h16")) and Address(0, every[-1]) in host.addresses
    rules = {asked_of(entry.rule) for entry in world.switches["s1"].default.values()}
    assert rules - {None} == host.addresses.keys() | {
        known for name in others(world, "h16") for known in world.controller.hosts.by_name[name].addresses
    }


def test_an_address_whose_host_is_gone_is_the_next_ones_and_its_rules_are_replaced() -> None:
    world = acquainted()
    receivers(world, "h16", advertisement("h16", "h1"))
    there = world.network.attachment("h16")
    assert there is not None
    world.set_link(there, is_up=False)
    world.pass_time(1)
    receivers(world, "h2", advertisement("h2", "h1", address6("h16")))
    assert receivers(world, "h9", solicitation("h9", address6("h16"))) == ["h2"]


def test_addresses_of_a_file_are_of_both_versions_and_known_at_once() -> None:
    text = f"""
    127.0.0.1 localhost h1
    ff02::1 ip6-allnodes h1
    {address("h16")} h16.example h16
    {address6("h16")} h16
    fe80::10%eth0 h16
    10.0.0.9 unknown
    """
    found = parse_addresses_file(text, "hosts", ["h1", "h16"])
    assert found == {address("h16"): "h16", address6("h16"): "h16", "fe80::10": "h16"}
    with pytest.raises(WrongUse, match=r"hosts:2: fd00::1 is h1's already"):
        parse_addresses_file("fd00::1 h1\nFD00:0::1 h2\n", "hosts", ["h1", "h2"])
    world = acquainted(addresses=found)
    world.send("h16", tcp("h16", "h1"))
    world.settle()
    assert receivers(world, "h9", solicitation("h9", address6("h16"))) == ["h16"]
    taken = advertisement("h2", "h1", address6("h16"))
    world.set_link(world.network.attachment("h16"), is_up=False)  # type: ignore[arg-type]
    receivers(world, "h2", taken)
    assert world.controller.hosts.with_address(address6("h16")) is world.controller.hosts.by_name["h16"]


# Flows


def test_flows_over_ipv6_are_placed_by_their_ports_and_apart_from_those_over_ipv4() -> None:
    world = acquainted()
    four, six, other = tcp("h1", "h16"), tcp6("h1", "h16"), ipv6("h1", "h16", ICMPV6, b"\x80\0" + bytes(20))
    for frame in (four, six, other, tcp6("h1", "h16", 1001)):
        assert receivers(world, "h1", frame) == ["h16"]
    keys = {route.key for route in world.controller.router.routes if route.key.source == "h1"}
    wanted = {FlowKey("h1", "h16", "tcp6", 1000, 2000), FlowKey("h1", "h16", "tcp6", 1001, 2000)}
    assert keys >= wanted | {FlowKey("h1", "h16", "tcp", 1000, 2000), FlowKey("h1", "h16", "ip6")}
    ports = [world.switches["s13"].best(frame, 3).rule.out for frame in (four, six)]  # type: ignore[union-attr]
    assert len(ports) == 2 and all(world.is_placed("h1", frame) for frame in (four, six, other))
    world.delivered.clear()
    up = world.to_controller
    for _ in range(5):
        world.send("h1", six)
        world.settle()
    assert world.received("h16", six) == 5 and world.to_controller == up, "by its rules: nobody is asked"


def test_a_controller_that_restarts_adopts_flows_over_ipv6_and_knows_addresses_in_vlans() -> None:
    world = acquainted()
    six = tcp6("h1", "h16")
    world.send("h1", six)
    receivers(world, "h16", advertisement("h16", "h1"))
    receivers(world, "h16", tagged(arp("h16", address("h1")), 7))
    world.disconnect(tell=False)
    world.start_controller()
    world.connect()
    sent = []
    for _ in range(30):
        world.now += 0.1
        for _ in world.steps():
            sent += [message for switch in world.switches.values() for message in switch.inbox]
    assert not [message for message in sent if isinstance(message, AddRule | DeleteRule)], "all rules stand already"
    hosts = world.controller.hosts
    assert hosts.with_address(address6("h16")) is hosts.by_name["h16"] is hosts.with_address(address("h16"), 7)
    assert world.controller.router.routes.get(FlowKey("h1", "h16", "tcp6", 1000, 2000)) is not None


@pytest.mark.parametrize("protocol", ["tcp", "udp", "tcp6", "udp6", "ip", "ip6", "llc"])
def test_a_flows_rules_name_it_again(protocol: str) -> None:
    ports = (1000, 2000) if protocol[:3] in ("tcp", "udp") else (0, 0)
    key = FlowKey("h1", "h2", protocol, *ports)
    hosts = Hosts({"h1": mac("h1"), "h2": mac("h2")})
    for match, priority in flow_matches(key, hosts):
        assert key_of(Rule(match, priority, 1), hosts) == key
    assert key.reversed().reversed() == key and key.transport == protocol.removesuffix("6")


def test_extension_headers_are_passed_over_as_switches_do() -> None:
    plain = tcp6("h1", "h2")
    chain = b"".join(header for _, header in EXTENSIONS)
    extended = plain[:20] + b"\0" + plain[21:54] + chain + plain[54:]
    found, wanted = read_headers(extended), read_headers(plain)
    assert found == wanted and found is not None and (found.ip_proto, found.source_port) == (TCP, 1000)
    for offset, protocol, port in ((0x0001, UDP, 1000), (0x0008, 44, 0)):
        fragment = plain[:20] + b"\x2c" + plain[21:54] + b"\x11\0" + offset.to_bytes(2, "big") + bytes(4) + plain[54:]
        found = read_headers(fragment)
        assert found is not None and (found.ip_proto, found.source_port) == (protocol, port), "a later one has no ports"
    for length in range(len(extended)):
        cut = read_headers(extended[:length])
        assert cut is None or length >= len(extended) - 16
    assert read_headers(plain[:14] + b"\x45" + plain[15:]) is None, "not version 6"


def test_what_is_behind_a_snap_header_is_what_a_switch_takes_it_for() -> None:
    plain = tcp6("h1", "h2")
    snap = plain[:12] + (len(plain) - 6).to_bytes(2, "big") + b"\xaa\xaa\x03\0\0\0" + plain[12:]
    assert read_headers(snap) == read_headers(plain)
    other = snap[:17] + b"\0\0\x01" + snap[20:]
    found = read_headers(other)
    assert found is not None and found.eth_type == LENGTH_FRAME, "of another organisation"


def test_headers_of_ipv6_are_read_from_any_bytes() -> None:
    chance = random.Random(7)
    frames = [tcp6("h1", "h2"), solicitation("h1", address6("h2")), advertisement("h2", "h1")]
    frames += [tagged(frame, 9) for frame in frames]
    for _ in range(5000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randrange(1, 6)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        read_headers(bytes(frame[: chance.randrange(len(frame) + 1)]))


def test_policies_and_announcements_mean_both_versions_unless_they_say_6() -> None:
    four, six = FlowKey("h1", "h2", "tcp", 5000, 22), FlowKey("h1", "h2", "tcp6", 5000, 22)
    ports = ((22, 22),)
    assert [Traffic("tcp", ports).fits(key) for key in (four, six)] == [True, True]
    assert [Traffic("tcp6", ports).fits(key) for key in (four, six)] == [False, True]
    assert [Traffic(None, ports).fits(key) for key in (four, six)] == [True, True]
    assert not Traffic("udp", ports).fits(six) and not Traffic("ip").fits(six)
    assert Traffic("ip").fits(FlowKey("h1", "h2", "ip6"))
    policy = parse_policy('[strategies]\ndefault = "stp"\n[[signature]]\nprofile = "x"\nprotocol = "udp6"\n', "policy")
    assert policy.signatures[0].traffic == Traffic("udp6")
    with pytest.raises(WrongUse, match="ip6 has no ports"):
        parse_policy('[[signature]]\nprofile = "x"\nprotocol = "ip6"\nports = [1]\n', "policy")
    job = {"profile": "mpi", "hosts": ["h1"], "traffic": [{"protocol": "tcp6", "ports": [1]}]}
    assert read(job, Announcement).traffic[0].protocol == "tcp6"
    with pytest.raises(WrongUse, match="tcp4"):
        read({**job, "traffic": [{"protocol": "tcp4"}]}, Announcement)


# VLANs


def test_a_tagged_arp_request_and_its_answer_keep_their_tag() -> None:
    world = acquainted()
    receivers(world, "h16", tagged(arp("h16", address("h1")), 7))
    asked = tagged(arp("h9", address("h16")), 7)
    assert receivers(world, "h9", asked) == ["h16"]
    assert world.delivered == [("h16", with_destination(asked, mac("h16")))]
    answer = tagged(arp("h16", address("h9"), is_request=False, to=mac("h9")), 7)
    assert receivers(world, "h16", answer) == ["h9"] and world.delivered == [("h9", answer)]
    asked = tagged(solicitation("h9", address6("h16")), 7)
    receivers(world, "h16", tagged(advertisement("h16", "h9"), 7))
    assert receivers(world, "h9", asked) == ["h16"] and world.delivered[0][1][12:16] == asked[12:16]


def test_each_vlan_has_its_own_addresses() -> None:
    world = acquainted()
    owners = {0: "h16", 7: "h2", 8: "h3"}
    for vlan, owner in owners.items():
        frame = arp(owner, address("h1"), sender="10.5.0.1")
        receivers(world, owner, tagged(frame, vlan) if vlan else frame)
    assert "an address that is another's" not in world.controller.reception.counts
    for vlan, owner in owners.items():
        asked = arp("h9", "10.5.0.1")
        assert receivers(world, "h9", tagged(asked, vlan) if vlan else asked) == [owner]
    assert receivers(world, "h9", tagged(arp("h9", "10.5.0.1"), 9)) == others(world, "h9"), "nobody's there: flooded"
    forged = tagged(arp("h4", address("h1"), sender="10.5.0.1"), 7)
    receivers(world, "h4", forged)
    assert world.controller.reception.counts["an address that is another's"] == 1


def test_tagged_frames_are_classified_by_what_is_inside_and_keep_their_tag_on_the_path() -> None:
    world = acquainted()
    for plain in (tcp("h1", "h16"), tcp6("h1", "h16"), llc("h1", "h16"), llc("h1", "h16", is_jumbo=True)):
        frame = tagged(plain, 42)
        assert receivers(world, "h1", frame) == ["h16"] and world.delivered == [("h16", frame)]
        assert world.is_placed("h1", frame) and world.is_placed("h1", plain)
        assert receivers(world, "h1", frame) == ["h16"] and world.delivered == [("h16", frame)]
        found, wanted = read_headers(frame), read_headers(plain)
        assert found is not None and wanted is not None and found == replace(wanted, vlan=42)
    service = tcp("h1", "h16")[:12] + b"\x88\xa8\0\x2a" + tcp("h1", "h16")[12:]
    assert read_headers(service) == replace(read_headers(tcp("h1", "h16")), vlan=42)  # type: ignore[type-var]


def test_labels_are_no_vlans() -> None:
    """An address that is seen with a label is one without a tag, and no rule for it goes into the label's VLAN."""
    world = acquainted()
    receivers(world, "h16", labelled(arp("h16", address("h1")), 3))
    hosts = world.controller.hosts
    assert hosts.with_address(address("h16")) is hosts.by_name["h16"]
    assert hosts.with_address(address("h16"), 0xF03) is None


def test_rules_for_requests_in_all_vlans_of_an_earlier_controller_are_replaced() -> None:
    world = acquainted()
    receivers(world, "h16", arp("h16", address("h1")))
    for switch in world.switches.values():
        for place, entry in list(switch.default.items()):
            if asked_of(entry.rule) is not None:
                match = replace(entry.rule.match, vlan=None)
                del switch.default[place]
                entry.rule = replace(entry.rule, match=match)
                switch.default[match, place[1]] = entry
    world.disconnect(tell=False)
    world.start_controller()
    world.connect()
    world.pass_time(2)
    assert not [
        match
        for switch in world.switches.values()
        for match, _ in switch.default
        if match.arp_target and not match.vlan
    ]
    receivers(world, "h16", arp("h16", address("h1")))
    assert receivers(world, "h9", arp("h9", address("h16"))) == ["h16"]


# Matches


def test_a_match_without_what_its_fields_require_cannot_be_made() -> None:
    for fields in (
        {"ip_proto": 6},
        {"ip_proto": 6, "eth_type": 0x0806},
        {"eth_type": 0x0800, "source_port": 1},
        {"eth_type": IPV6, "ip_proto": ICMPV6, "destination_port": 1},
        {"arp_target": "10.0.0.1"},
        {"eth_type": 0x0800, "ip_proto": ICMPV6, "icmp6_type": 135},
        {"eth_type": IPV6, "ip_proto": ICMPV6, "nd_target": "fd00::1"},
        {"eth_type": IPV6, "ip_proto": ICMPV6, "icmp6_type": 136, "nd_target": "fd00::1"},
        {"vlan_mask": 7},
        {"vlan": UNTAGGED, "vlan_mask": 7},
    ):
        with pytest.raises(ValueError, match="need"):
            Match(**fields)  # type: ignore[arg-type]


def test_switches_in_memory_tell_requests_and_tags_apart() -> None:
    rule = asked_rule(Address(0, address6("h16")), mac("h16"), 1)
    asked = solicitation("h1", address6("h16"))
    assert asked_of(rule) == Address(0, address6("h16")) and matches(rule.match, asked, 1)
    assert not matches(rule.match, tagged(asked, 5), 1) and not matches(
        rule.match, solicitation("h1", address6("h2")), 1
    )
    assert not matches(rule.match, advertisement("h16", "33:33:ff:00:00:10"), 1)
    in_vlan = asked_rule(Address(5, address6("h16")), mac("h16"), 1)
    assert matches(in_vlan.match, tagged(asked, 5), 1) and not matches(in_vlan.match, asked, 1)
    assert asked_of(in_vlan) == Address(5, address6("h16"))
    assert asked_of(Rule(Match(in_port=1), 1, 1)) is None and Port("s1", 1)
