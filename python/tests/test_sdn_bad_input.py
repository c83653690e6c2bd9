# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Robustness of the network: loops, floods, forgeries, full tables, failing strategies."""

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from fake_switches import (
    World,
    acquainted,
    address,
    ethernet,
    llc,
    mac,
    matches,
    quiet,
    tcp,
    with_destination,
)

from barewire.errors import WrongUse
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.frames import BROADCAST, probe, read_headers, read_probe
from barewire.sdn.controller.full_tables import UNPLACED_S
from barewire.sdn.controller.hosts import ADDRESS_FORGOTTEN_S, Address, Hosts
from barewire.sdn.controller.reception import FORGED_S, UNROUTED_S
from barewire.sdn.controller.rules import DEFAULT_TABLE, Kind, drop_probes_rule, kind_of
from barewire.sdn.flow import FlowKey
from barewire.sdn.openflow.messages import ARP, AddRule, Match, PortState, PortStatus, ToSwitch
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Network, Port, fat_tree


def arp(host: str, target: str, is_request: bool = True, sender: str | None = None, to: str = BROADCAST) -> bytes:
    """An ARP packet of a host."""
    head = b"\0\1\x08\0\6\4\0" + (b"\1" if is_request else b"\2")
    ends = _mac(host), _ip(sender or address(host)), bytes(6), _ip(target)
    return ethernet(host, to, ARP, head + b"".join(ends))


def test_arp_requests_for_known_addresses_reach_only_their_owner() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    world.send("h1", arp("h1", address("h16")))
    world.settle()
    receivers = [host for host, frame in world.delivered]
    assert sorted(receivers) == sorted(host for host in world.network.hosts if host != "h1"), "each other host, once"
    world.delivered.clear()
    world.send("h16", arp("h16", address("h1"), is_request=False, to=mac("h1")))
    world.settle()
    assert [host for host, _ in world.delivered] == ["h1"], "the answer reaches who asked"
    world.delivered.clear()
    asked = arp("h9", address("h16"))
    world.send("h9", asked)
    world.settle()
    assert world.delivered == [("h16", with_destination(asked, mac("h16")))], "known now: its switches ask only it"


def test_an_address_of_a_file_cannot_be_taken_over() -> None:
    world = acquainted(addresses={address("h16"): "h16"})
    world.controller.hosts.forget_port(world.network.attachment("h16"))  # type: ignore[arg-type]
    forged = arp("h2", address("h1"), sender=address("h16"))
    world.send("h2", forged)
    world.settle()
    known = world.controller.hosts.with_address(address("h16"))
    assert known is not None and known.name == "h16"
    assert world.controller.reception.counts["an address that is another's"] == 1
    assert world.where("h2", forged) == "lost at s13" and world.where("h2", tcp("h2", "h1")) == "h1", (
        "its ARP is dropped"
    )


def test_an_address_of_a_present_host_cannot_be_taken_over() -> None:
    world = acquainted()
    for frame in (
        arp("h2", address("h1"), sender=address("h16")),
        tcp("h16", "h1")[:6] + tcp("h2", "h1")[6:12] + tcp("h16", "h1")[12:],
    ):
        world.send("h2", frame)
        world.settle()
        known = world.controller.hosts.with_address(address("h16"))
        assert known is not None and known.name == "h16"
    gone = world.network.attachment("h16")
    assert gone is not None
    world.set_link(gone, is_up=False)
    world.pass_time(FORGED_S + 1)
    world.send("h2", arp("h2", address("h1"), sender=address("h16")))
    world.settle()
    known = world.controller.hosts.with_address(address("h16"))
    assert known is not None and known.name == "h2", "once its host is gone, another may have it"


def test_a_router_keeps_no_host_from_its_address_for_long() -> None:
    """What it forwards has others' addresses. That of a host which it learnt first is the host's after ten minutes."""
    hosts = Hosts()
    router, host = hosts.learn(mac("h1"), Port("s1", 1), 0.0), hosts.learn(mac("h2"), Port("s1", 2), 0.0)
    assert router is not None and host is not None
    own = Address(0, "10.0.0.2")
    for now in (0.0, 300.0, 599.0):
        assert hosts.learn_address(router, own, now, is_named=False)
    assert not hosts.learn_address(host, own, 599.0), "an address of a present host is not taken at once"
    assert hosts.learn_address(host, own, ADDRESS_FORGOTTEN_S)
    assert hosts.with_address(own.ip) is host and hosts.take_lost() == [(router.mac, own)]
    assert hosts.learn_address(host, own, 1000.0) and not hosts.learn_address(router, own, 1599.0)
    assert not hosts.learn_address(router, own, 1e6, is_named=False) and hosts.with_address(own.ip) is host


def test_broadcasts_do_not_storm_in_a_network_with_loops() -> None:
    """A ring of three switches, each joined to the next twice: every host gets a broadcast once."""
    world = World(ring(), quiet())
    world.stand_up()
    frame = ethernet("h1", BROADCAST, 0x0842, b"wake")
    world.send("h1", frame)
    world.settle()
    assert sorted(host for host, got in world.delivered if got == frame) == ["h2", "h3"]
    assert world.to_controller < 100


def test_a_loop_outside_the_network_does_not_multiply_broadcasts() -> None:
    """Two edge ports joined by a device that drops probes: frames from one return through the other.

    The first to return is a sign for the controller, which has the others dropped at their port for a while.
    """
    world = acquainted()
    frame = ethernet("h1", BROADCAST, 0x0842, b"wake")
    there = world.network.attachment("h9")
    assert there is not None
    world.send("h1", frame)
    world.settle()
    for _ in range(50):
        world.arrive(there, frame, 64)
        world.settle()
    assert world.received("h16", frame) == 2
    assert world.controller.hosts.by_name["h1"].port == world.network.attachment("h1"), "and nobody has moved"


def test_only_a_flooding_port_is_held_off() -> None:
    world = acquainted(frames_burst=100, frames_per_s=100)
    frame = tcp("h1", "h16")
    world.send("h1", frame)
    world.settle()
    for number in range(3000):
        world.send("h1", tcp("h1", "h16", number + 1, 7))
        if number % 10 == 0:
            world.settle()
    assert world.to_controller < 600, "its switch drops what no rule takes"
    assert any(event.kind == "flood" for event in world.events)
    assert world.where("h1", frame) == "h16", "flows with rules go on"
    world.send("h2", tcp("h2", "h16", 5, 5))
    world.settle()
    assert world.where("h2", tcp("h2", "h16", 5, 5)) == "h16", "and so do other ports"
    world.pass_time(3)
    world.send("h1", tcp("h1", "h15", 5, 5))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h15", 5, 5)), "until it is quiet again"


def test_a_busy_flow_without_a_path_is_no_flood() -> None:
    """Its host's switch is not connected and so in no path, but goes on forwarding."""
    world = acquainted(frames_burst=100, frames_per_s=100)
    there = world.network.attachment("h16")
    assert there is not None
    world.disconnect(there.node)
    world.pass_time(1)
    world.delivered.clear()
    for number in range(500):
        world.send("h1", tcp("h1", "h16", 5, 5, identification=number))
        if number % 20 == 0:
            world.settle()
    assert len(world.delivered) == 500 and not any(event.kind == "flood" for event in world.events)
    world.connect(there.node)
    world.pass_time(UNROUTED_S + 1)
    world.send("h1", tcp("h1", "h16", 5, 5))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h16", 5, 5)), "once there is a path again, after a while"


def test_a_host_that_floods_with_probes_is_held_off_and_links_stay() -> None:
    world = acquainted(frames_burst=100, frames_per_s=100)
    peers = dict(world.controller.discovery.peers)
    link = next(port for port in sorted(peers) if port.node == "s13")
    before = world.to_controller
    for number in range(2000):
        world.send("h1", probe(b"wrong key", "s20", number))
        if number % 10 == 0:
            world.settle()
    assert world.to_controller < before + 200
    for number in range(2000):
        world.arrive(link, probe(b"wrong key", "s20", number), 64)
        if number % 10 == 0:
            world.settle()
    assert drop_probes_rule(link.number, 1) not in [entry.rule for entry in world.switches["s13"].table.values()]
    world.pass_time(5)
    assert world.controller.discovery.peers == peers
    world.send("h1", tcp("h1", "h16", 5, 5))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h16", 5, 5)), "it is quiet again"


def test_many_addresses_behind_one_port_do_not_grow_the_controller() -> None:
    world = acquainted(frames_burst=100_000)
    before = len(world.controller.hosts.by_mac)
    frame = tcp("h1", "h16")
    for number in range(400):
        forged = b"\x02\x99" + number.to_bytes(4, "big")
        world.send("h1", frame[:6] + forged + frame[12:])
        world.settle()
    assert len(world.controller.hosts.by_mac) - before <= 256


def test_a_host_that_broadcasts_passes_until_it_floods() -> None:
    """A hundred broadcasts a second pass; a flood is dropped at its port."""
    world = acquainted(frames_burst=300)
    for number in range(100):
        world.send("h1", ethernet("h1", BROADCAST, 0x0842, number.to_bytes(2, "big")))
        world.pass_time(0.01, tick_s=0.01)
    assert sum(host == "h9" for host, _ in world.delivered) == 100
    for number in range(1000):
        world.send("h1", arp("h1", f"10.9.{number >> 8}.{number & 255}"))
        world.settle()
    assert sum(host == "h9" for host, _ in world.delivered) < 600


def test_forged_and_foreign_probes_make_no_links() -> None:
    world = acquainted()
    peers = dict(world.controller.discovery.peers)
    for forged in (probe(b"wrong key", "s20", 3), probe(b"key", "s20", 3)[:-20], probe(b"key", "s20", 3)[:40]):
        assert read_probe(b"key", forged) is None
        world.send("h1", forged)
    world.settle()
    assert world.controller.discovery.peers == peers
    assert world.controller.reception.counts["foreign LLDP"] == 3


def test_frames_of_any_bytes_are_parsed_or_refused(seed: int = 1) -> None:
    chance = random.Random(seed)
    frames = [tcp("h1", "h2"), llc("h1", "h2"), arp("h1", address("h2")), probe(b"key", "s1", 1)]
    for _ in range(5000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randrange(1, 6)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        cut = bytes(frame[: chance.randrange(len(frame) + 1)])
        read_headers(cut)
        assert read_probe(b"other", cut) is None


def test_other_ethertypes_take_the_default_path_and_are_not_sent_up() -> None:
    world = acquainted()
    frame = ethernet("h1", "h2", 0x0842, bytes(60))
    for _ in range(20):
        world.send("h1", frame)
        world.settle()
    assert world.received("h2", frame) == 20 and not world.lost
    assert world.controller.reception.counts["of EtherTypes that only take the default path"] == 1
    for eth_type in range(0x9000, 0x9100):
        world.send("h1", ethernet("h1", "h2", eth_type, bytes(60)))
        world.settle()
    assert len(world.switches["s13"].table) < 40, "one host cannot fill its switch's table by that"


def test_idle_flows_are_evicted_from_a_full_table() -> None:
    world = acquainted(flow_statistics_s=0.5)
    world.pass_time(2)
    switch = world.switches["s13"]
    switch.capacity = len(switch.table)
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h16")) and len(switch.table) <= switch.capacity
    assert any("idle flows evicted" in event.text for event in world.events)


@pytest.mark.parametrize("seed", range(4))
def test_an_aggregate_rule_is_used_if_all_flows_are_busy(seed: int) -> None:
    """Twenty busy flows from an edge switch with room for six: all arrive, by rules, and the table stays bounded."""
    world = acquainted(seed, flow_statistics_s=0.5)
    switch = world.switches["s13"]
    frames = {(host, port): tcp(host, "h16", port, 7) for host in ("h1", "h2") for port in range(10)}
    switch.capacity = len(switch.table) + 6
    for _ in range(8):
        for (host, _), frame in frames.items():
            world.send(host, frame)
        world.pass_time(0.25)
    assert len(switch.table) <= switch.capacity
    for (host, _), frame in frames.items():
        assert world.where(host, frame) == "h16"
    assert any("aggregate rule" in event.text for event in world.events)
    sent = world.received("h16", frames["h1", 0])
    assert sent == 8 and not [frame for _, frame in world.lost if frame in frames.values()]
    kinds = [kind_of(entry.rule.cookie) for entry in switch.table.values()]
    assert Kind.TO_HOST in kinds


def aggregated(capacity_later: int) -> tuple[World, Port]:
    """A flow from h1 to h9, port 500, by an aggregate rule, because its first switch was full; the rule's port."""
    world = acquainted()
    switch, routes = world.switches["s13"], world.controller.router.routes
    for port in (100, 101, 102, 500):
        switch.capacity = len(switch.table) if port == 500 else switch.capacity
        world.send("h1", tcp("h1", "h9", port, 7))
        world.settle()
        for route in routes:
            route.counted_s = world.now
            routes.put(route, replace(route.placed, rate_byte_s=1e5))
    switch.capacity += capacity_later
    [rule] = [entry.rule for entry in switch.table.values() if kind_of(entry.rule.cookie) is Kind.TO_HOST]
    assert world.where("h1", tcp("h1", "h9", 999, 7)) == "h9"
    return world, Port("s13", *rule.out)


@pytest.mark.parametrize("room", [0, 3])
def test_an_aggregate_rule_does_not_outlive_its_link(room: int) -> None:
    """With room, its flow gets rules of its own; connections that are not placed yet take the default path."""
    world, port = aggregated(room)
    world.set_link(port, is_up=False)
    world.pass_time(1)
    assert world.where("h1", tcp("h1", "h9", 500, 7)) == world.where("h1", tcp("h1", "h9", 999, 7)) == "h9"
    assert port.number not in {out for rule in world.controller.full.rules_at("s13") for out in rule.out}
    before = len(world.lost)
    world.send("h1", tcp("h1", "h9", 999, 7))
    world.settle()
    assert world.received("h9", tcp("h1", "h9", 999, 7)) == 1 and len(world.lost) == before


def test_an_aggregate_rule_is_deleted_after_its_flow_has_moved() -> None:
    world, port = aggregated(3)
    router, frame = world.controller.router, tcp("h1", "h9", 500, 7)
    route = router.routes.get(FlowKey("h1", "h9", "tcp", 500, 7))
    assert route is not None and port in route.path
    paths = router.network_state.paths.between("h1", "h9")
    router.move(route, replace(route.placed, path=next(path for path in paths if port not in path)))
    for _ in world.steps():
        assert world.where("h1", frame) == "h9"
    world.pass_time(world.settings.drain_s + 0.1)
    assert world.where("h1", frame) == "h9" and not route.aggregated and not world.controller.full.rules_at("s13")
    assert Kind.TO_HOST not in {kind_of(entry.rule.cookie) for entry in world.switches["s13"].table.values()}


def test_flows_of_a_switch_without_room_for_any_rule_stay_on_the_default_path() -> None:
    world = acquainted()
    world.switches["s13"].capacity = 0
    sent = [tcp("h1", "h16", identification=number) for number in range(5)]
    for frame in sent:
        world.send("h1", frame)
        world.settle()
    assert [world.received("h16", frame) for frame in sent] == [1] * 5
    assert world.controller.full.stays_on_default_path(FlowKey("h1", "h16", "tcp", 1000, 2000), world.now)
    world.switches["s13"].capacity = 1000
    world.pass_time(UNPLACED_S + 1)
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h16"))


def test_a_port_that_came_up_beside_a_full_table_is_heard_when_there_is_room() -> None:
    """The switch is asked less and less often meanwhile, and the refusal is said once."""
    world = World(fat_tree(4, servers=0), quiet())
    port = world.network.attachment("h2")
    assert port is not None
    world.set_link(port, is_up=False)
    world.stand_up()
    switch = world.switches[port.node]
    switch.capacity = len(switch.table)
    world.set_link(port, is_up=True)
    world.pass_time(30)
    assert [event.kind for event in world.events].count("switch refused") == 1
    world.send("h2", tcp("h2", "h1"))
    world.settle()
    assert world.controller.hosts.by_name["h2"].port is None
    switch.capacity += 100
    world.pass_time(8.1)
    world.send("h2", tcp("h2", "h1"))
    world.settle()
    assert world.controller.hosts.by_name["h2"].port == port


def test_a_copy_that_found_no_room_is_not_installed_where_a_switch_is() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    port = Port("s13", 3)
    switch = world.switches[port.node]
    switch.capacity = len(switch.table)
    world.set_link(port, is_up=False)
    world.settle()
    world.controller.handle(port.node, PortStatus(PortState(port.number, "p3", True)), world.now)
    world.pass_time(0.5)
    assert any(event.kind == "switch refused" for event in world.events), "it looked like a host's port"
    world.set_link(port, is_up=True)
    world.pass_time(0.4)
    switch.capacity += 100
    world.pass_time(10)
    assert port in world.controller.discovery.peers
    assert not any(match.in_port == port.number for match, _ in switch.table)


def test_base_rules_that_found_no_room_are_installed_when_there_is() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    switch = world.switches["s13"]
    switch.capacity = 1
    world.connect()
    world.pass_time(3)
    switch.capacity = 100
    world.pass_time(8.1)
    assert [kind_of(entry.rule.cookie) for entry in switch.table.values()].count(Kind.BASE) == 2
    assert any(port.node == "s13" for port in world.controller.discovery.peers)


def test_default_rules_that_found_no_room_are_installed_when_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then flows have rules of their own at that switch. A slice at a time, and the refusal is said once."""
    monkeypatch.setattr("barewire.sdn.controller.default_path.SLICE_RULES", 5)
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    switch, there = world.switches["s20"], world.network.attachment("h16")
    assert there is not None and there.node == switch.name
    switch.default_capacity = len(switch.default) + 3
    for host in world.network.hosts:
        world.send(host, tcp(host, "h1" if host != "h1" else "h2", 1, 1))
        world.settle()
    world.pass_time(30)
    assert [event.kind for event in world.events].count("switch refused") == 1
    assert not world.controller.default_path.carries(there, "h16")
    switch.default_capacity = 1000
    world.pass_time(8.1)
    reached = {match.eth_dst for match, _ in switch.default if match.arp_target is None}
    assert reached == {None, *map(mac, world.network.hosts)}
    assert world.controller.default_path.carries(there, "h16")
    assert [event.kind for event in world.events].count("switch refused") == 1


def test_a_full_switch_that_connects_again_and_again_is_not_given_rules_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    switch, poll = world.switches["s20"], world.controller.poll
    switch.default_capacity = len(switch.default) + 3
    for host in world.network.hosts:
        world.send(host, tcp(host, "h1" if host != "h1" else "h2", 1, 1))
        world.settle()
    for _ in range(5):
        world.disconnect("s20")
        world.connect("s20")
        world.pass_time(2.7)
    world.pass_time(20)
    tried = set[float]()

    def polled(now: float) -> dict[str, list[ToSwitch]]:
        messages = poll(now)
        if any(isinstance(one, AddRule) and one.rule.table == DEFAULT_TABLE for one in messages.get("s20", ())):
            tried.add(now)
        return messages

    monkeypatch.setattr(world.controller, "poll", polled)
    world.pass_time(16)
    assert len(tried) == 2, "each 8 s"


class Failing:
    """A failing strategy."""

    name = "failing"
    period_s = 1.0

    def place(self, flow, paths, view):  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("a mistake")

    def rearrange(self, view):  # type: ignore[no-untyped-def]
        if len(view.placed) % 2:
            raise KeyError("another")
        return {key: (Port("s99", 1),) for key in view.placed}


def test_a_strategy_that_fails_does_not_stop_the_network() -> None:
    world = World(fat_tree(4, servers=0), quiet(), Policy({"default": "test_sdn_bad_input:Failing"}, ()))
    world.stand_up()
    for host in ("h16", "h1"):
        world.send(host, tcp(host, "h1" if host == "h16" else "h16"))
        world.settle()
    world.pass_time(2)
    world.send("h16", tcp("h16", "h1"))
    world.pass_time(2)
    assert world.where("h1", tcp("h1", "h16")) == "h16"
    messages = [event.text for event in world.events if event.kind == "strategy failed"]
    assert any("a mistake" in text for text in messages) and any("chose no path" in text for text in messages)
    assert any("another" in text for text in messages)


@dataclass(frozen=True)
class Astray:
    """A strategy that wants to move its flows to what is no path."""

    wanted: str
    name: ClassVar[str] = "astray"
    period_s: ClassVar[float] = 1.0

    def place(self, flow, paths, view):  # type: ignore[no-untyped-def]
        return Placement(paths[0])

    def rearrange(self, view):  # type: ignore[no-untyped-def]
        wrong: dict[str, Any] = {"none": None, "number": 3, "empty list": [], "names": ("s1", "s2")}
        return {key: wrong[self.wanted] for key in view.placed} if self.wanted in wrong else None


@pytest.mark.parametrize("wanted", ["none", "number", "empty list", "names", "nothing at all"])
def test_a_strategy_that_wants_what_is_no_path_does_not_keep_flows_from_moving_later(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.sdn.controller.router.MOVED_MAX", 2)
    world = acquainted()
    router = world.controller.router
    world.controller.set_strategy("default", f"test_sdn_bad_input:Astray:wanted={wanted}", world.now)
    world.pass_time(2.5)
    texts = [event.text for event in world.events if event.kind == "strategy failed"]
    assert texts
    frame = tcp("h1", "h16", 7, 7)
    world.send("h1", frame)
    world.settle()
    route = router.routes.get(FlowKey("h1", "h16", "tcp", 7, 7))
    assert route is not None
    path = next(path for path in router.network_state.paths.between("h1", "h16") if path != route.path)
    router.rearranged([(world.controller.strategy_of("default"), {route.key: path})], world.now)
    world.settle()
    assert route.path == path and world.where("h1", frame) == "h16"


@dataclass(frozen=True)
class Reserving:
    """A strategy with mistakes in what it returns: a number of seconds, or `nothing`."""

    seconds: str
    name: ClassVar[str] = "reserving"
    period_s: ClassVar[float] = 0.0

    def place(self, flow, paths, view):  # type: ignore[no-untyped-def]
        return None if self.seconds == "nothing" else Placement(paths[-1], float(self.seconds), "mine")

    def rearrange(self, view):  # type: ignore[no-untyped-def]
        return {}


@pytest.mark.parametrize("seconds", ["nan", "-1", "1e300", "nothing"])
def test_a_strategy_that_reserves_no_possible_time_does_not_stop_the_network(seconds: str) -> None:
    world = acquainted()
    world.controller.set_strategy("default", f"test_sdn_bad_input:Reserving:seconds={seconds}", world.now)
    world.settle()
    frame = tcp("h1", "h16", 7, 7)
    world.send("h1", frame)
    world.pass_time(2)
    assert world.is_placed("h1", frame) and world.where("h1", frame) == "h16"
    assert not any(placed.reserved_until_s for placed in world.controller.router.routes.placed.values())
    texts = [event.text for event in world.events if event.kind == "strategy failed"]
    assert any("nothing is reserved" in text or "the first path is used" in text for text in texts)


def test_an_unknown_strategy_is_refused_and_nothing_changes() -> None:
    world = acquainted()
    before = world.controller.policy
    with pytest.raises(WrongUse, match="unknown strategy 'best'; there are: stp"):
        world.controller.set_strategy("mpi", "best", world.now)
    assert world.controller.policy is before


def test_a_new_strategy_places_its_profiles_flows_again() -> None:
    world = acquainted()
    frame = tcp("h1", "h16", identification=3)
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 1000, 2000))
    assert route is not None
    before = route.path
    world.controller.set_strategy("default", "ecmp-published", world.now)
    for _ in world.steps():
        assert world.where("h1", frame) == "h16"
    assert route.path != before


def test_memory_does_not_grow_with_flows_that_come_and_go() -> None:
    world = World(
        fat_tree(4, servers=0), replace(quiet(), idle_s=1, hard_s=5, margin_s=1, frames_burst=10**6, frames_per_s=10**6)
    )
    world.stand_up()
    world.send("h16", tcp("h16", "h1", 9, 9))
    world.settle()
    for number in range(400):
        world.send("h1", tcp("h1", "h16", number + 1, 7))
        if number % 40 == 0:
            world.pass_time(1, tick_s=0.5)
    world.pass_time(12, tick_s=0.5)
    controller = world.controller
    assert not len(controller.router.routes) and not controller.router.routes.crossing
    assert all(len(switch.table) in (2, 2 + 2 * 6) for switch in world.switches.values())
    assert not controller.router.routes._through and not controller.router.routes.reservations.paths
    assert len(controller.outbox._later) < 20 and all(not line.barriers for line in controller.outbox._lines.values())


def ring() -> Network:
    """Three switches in a ring, two links between each pair, a host on each."""
    peers: dict[Port, Port] = {}
    for number in (1, 2, 3):
        following = number % 3 + 1
        for link in (0, 1):
            peers[Port(f"s{number}", 2 + link)] = Port(f"s{following}", 4 + link)
        peers[Port(f"h{number}", 1)] = Port(f"s{number}", 1)
    return Network(("s1", "s2", "s3"), ("h1", "h2", "h3"), peers | {peer: port for port, peer in peers.items()})


def test_an_empty_match_matches_everything() -> None:
    """The matching of the fake switches, on which all tests rely."""
    assert matches(Match(), tcp("h1", "h2"), 1)
    assert not matches(Match(in_port=2), tcp("h1", "h2"), 1)
    assert not matches(Match(eth_type=0x05FF), tcp("h1", "h2"), 1) and matches(
        Match(eth_type=0x05FF), llc("h1", "h2"), 1
    )


def _mac(host: str) -> bytes:
    return bytes.fromhex(mac(host).replace(":", ""))


def _ip(text: str) -> bytes:
    return bytes(map(int, text.split(".")))
