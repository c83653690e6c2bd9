# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller on switches in memory: learning, no lost, duplicated or looped packets, failures."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from fake_switches import Entry, FakeSwitch, World, acquainted, llc, mac, quiet, tcp

from barewire.sdn.classify.jobs import parse_job
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.core import Controller
from barewire.sdn.controller.hosts import Hosts
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import Kind, kind_of
from barewire.sdn.controller.settings import Settings
from barewire.sdn.flow import FlowKey, Placed
from barewire.sdn.openflow.messages import (
    AddRule,
    FromSwitch,
    Match,
    PortState,
    PortStatus,
    Request,
    RequestKind,
    Rule,
    ToSwitch,
)
from barewire.sdn.strategies.isolated import _reserved
from barewire.topology import Path, Port, fat_tree, shortest_paths

TCP_KEY = FlowKey("h1", "h16", "tcp", 1000, 2000)
SEEDS = range(6)


def carrying(seed: int = 1, **settings: float) -> tuple[World, bytes, Route]:
    """A network with learnt hosts and one placed flow: the network, a packet of the flow, and its route."""
    world = acquainted(seed, **settings)
    frame = tcp("h1", "h16")
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(TCP_KEY)
    assert route is not None
    return world, frame, route


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_flows_packets_arrive_once_in_any_order_of_installation(seed: int) -> None:
    """A packet is sent after every single message; each must arrive exactly once."""
    world = acquainted(seed)
    sent = [tcp("h1", "h16", identification=0)]
    world.send("h1", sent[0])
    for number, _ in enumerate(world.steps(), start=1):
        assert world.where("h1", sent[0]) == "h16", "by the default path wherever its rule is missing"
        if number <= 60:
            sent.append(tcp("h1", "h16", identification=number))
            world.send("h1", sent[-1])
    assert [world.received("h16", frame) for frame in sent] == [1] * len(sent)
    assert not world.lost and world.where("h1", sent[0]) == "h16" and world.is_placed("h1", sent[0])


def test_packets_sent_up_during_installation_belong_to_the_flow() -> None:
    world = acquainted()
    flows = len(world.controller.router.routes)
    for number in range(10):
        world.send("h1", tcp("h1", "h16", identification=number))
    world.settle()
    assert len(world.controller.router.routes) == flows + 1
    assert len(world.delivered) == len(set(world.delivered)) == 10


def test_each_direction_is_a_separate_flow() -> None:
    world = acquainted()
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    back = tcp("h16", "h1", 2000, 1000)
    assert world.is_placed("h1", tcp("h1", "h16")) and not world.is_placed("h16", back)
    world.send("h16", back)
    world.settle()
    assert world.is_placed("h16", back) and world.where("h16", back) == "h1"


def test_llc_with_a_length_and_in_long_frames_is_one_flow() -> None:
    world = acquainted()
    world.send("h1", llc("h1", "h9"))
    world.settle()
    assert world.where("h1", llc("h1", "h9")) == world.where("h1", llc("h1", "h9", is_jumbo=True)) == "h9"
    assert world.is_placed("h1", llc("h1", "h9")) and world.is_placed("h1", llc("h1", "h9", is_jumbo=True))
    assert not world.is_placed("h1", tcp("h1", "h9")), "IP between the same hosts is another"
    assert world.controller.router.routes.get(FlowKey("h1", "h9", "llc")) is not None


def test_rules_of_other_ip_do_not_match_tcp() -> None:
    """A rule for ICMP between two hosts must not hide their next connection from the controller."""
    world = acquainted()
    ping = tcp("h1", "h9")
    ping = ping[:23] + b"\x01" + ping[24:]  # IP's protocol
    world.send("h1", ping)
    world.settle()
    assert world.is_placed("h1", ping) and not world.is_placed("h1", tcp("h1", "h9"))
    world.send("h1", tcp("h1", "h9"))
    world.settle()
    assert world.is_placed("h1", tcp("h1", "h9"))


def test_hosts_on_one_switch_reach_each_other() -> None:
    world = acquainted()
    world.send("h1", tcp("h1", "h2", 5, 5))
    world.settle()
    assert world.where("h1", tcp("h1", "h2", 5, 5)) == "h2"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flow_that_moves_loses_nothing_at_any_step(seed: int) -> None:
    """All paths of the fat-tree one after another, and back during the last move: always delivered by rules."""
    world, frame, _ = carrying(seed)
    router = world.controller.router
    route = router.routes.get(TCP_KEY)
    assert route is not None
    paths = router.network_state.paths.between("h1", "h16")
    assert len(paths) == 4
    for turn in range(12):
        router.move(route, _on(route.placed, paths[world.random.randrange(4)]))
        for number, _ in enumerate(world.steps()):
            assert world.where("h1", frame) == "h16", f"turn {turn}"
            if number == 5 + turn:  # another move during this one
                router.move(route, _on(route.placed, paths[turn % 4]))
        if turn % 3 == 0:
            world.pass_time(world.settings.drain_s + 0.1)
            assert world.where("h1", frame) == "h16"
            # Down the tree there is only one way.
            up = {hop.node for hop in route.path[:2]}
            assert {switch for switch in world.switches if _has(world, switch, route.number)} == up
    assert not world.lost


def test_an_idle_flows_rules_and_state_expire() -> None:
    world = World(fat_tree(4, servers=0))
    world.stand_up()
    world.send("h16", tcp("h16", "h1", 9, 9))
    world.settle()
    world.send("h1", tcp("h1", "h16"))
    world.settle()
    assert world.controller.router.routes.get(TCP_KEY) is not None
    world.pass_time(world.settings.idle_s - 1)
    assert world.where("h1", tcp("h1", "h16")) == "h16"
    world.pass_time(world.settings.margin_s + 3)
    assert not len(world.controller.router.routes)
    assert all(len(switch.table) in (2, 2 + 2 * 6) for switch in world.switches.values()), "no more than at first"


def test_an_llc_flow_of_only_long_frames_stays_known_and_follows_its_links() -> None:
    """Its rule for frames with a length goes idle, the other one does not."""
    world = acquainted(idle_s=20)
    frame = llc("h1", "h16", is_jumbo=True)
    for _ in range(10):
        world.send("h1", frame)
        world.pass_time(4)
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "llc"))
    assert route is not None and world.is_placed("h1", frame) and not world.is_placed("h1", llc("h1", "h16"))
    failed = route.path[0]
    world.set_link(failed, is_up=False)
    world.settle()
    assert failed not in route.path and world.where("h1", frame) == "h16" and world.is_placed("h1", frame)
    world.pass_time(world.settings.idle_s + world.settings.margin_s + 3)
    assert world.controller.router.routes.get(route.key) is None, "neither rule is left"


def test_an_llc_flow_of_only_long_frames_is_adopted() -> None:
    world = acquainted(idle_s=20)
    for _ in range(6):
        for frame in (llc("h1", "h16", is_jumbo=True), llc("h1", "h9"), llc("h1", "h9", is_jumbo=True)):
            world.send("h1", frame)
            world.settle()
        world.pass_time(4)
    known = {route.key: (route.path, route.packets) for route in world.controller.router.routes}
    assert known.keys() == {FlowKey("h1", host, "llc") for host in ("h9", "h16")}
    world.start_controller()
    world.connect()
    world.pass_time(3)
    assert {route.key: (route.path, route.packets) for route in world.controller.router.routes} == known


def test_an_llc_flow_is_placed_again_after_its_hard_time_out() -> None:
    world = acquainted(hard_s=10)
    numbers = set()
    for _ in range(60):
        for is_jumbo in (False, True):
            world.send("h1", llc("h1", "h16", is_jumbo))
        world.settle()
        route = world.controller.router.routes.get(FlowKey("h1", "h16", "llc"))
        assert route is not None
        numbers.add(route.number)
        world.pass_time(0.25)
    assert len(numbers) == 2


def test_a_busy_flow_is_placed_again_after_its_hard_time_out_without_loss() -> None:
    world = World(fat_tree(4, servers=0), Settings(hard_s=60))
    world.stand_up()
    world.send("h16", tcp("h16", "h1", 9, 9))
    world.settle()
    numbers, sent = set(), 0
    for identification in range(70 * 4):
        world.send("h1", tcp("h1", "h16", identification=identification))
        sent += 1
        world.settle()
        route = world.controller.router.routes.get(TCP_KEY)
        assert route is not None
        numbers.add(route.number)
        world.pass_time(0.25)
    assert len(numbers) == 2
    assert sum(host == "h16" for host, _ in world.delivered) == sent and not world.lost


def test_ports_and_flows_have_rates() -> None:
    world = acquainted(flow_statistics_s=1.0, link_rate_bit_s=10_000)
    frame = tcp("h1", "h16")
    for _ in range(40):
        world.send("h1", frame)
        world.pass_time(0.1)
    route = world.controller.router.routes.get(TCP_KEY)
    assert route is not None
    assert route.placed.rate_byte_s == pytest.approx(len(frame) * 10, rel=0.2)
    load = world.controller.rates.load_byte_s
    assert load[route.path[-1]] == pytest.approx(len(frame) * 10, rel=0.3)
    view = world.controller.router.view(world.now)
    assert view.crossing is not None and view.crossing[route.path[1]] == 1 and view.load_byte_s is load
    world.pass_time(2.1)
    assert route.placed.is_idle and route.path[1] not in view.crossing, "a silent flow is no load"
    for _ in range(20):
        world.send("h1", frame)
        world.pass_time(0.1)
    assert not route.placed.is_idle and view.crossing[route.path[1]] == 1, "until it sends again"


@pytest.mark.parametrize("seed", SEEDS)
def test_flows_over_a_link_that_fails_are_re_placed_at_once(seed: int) -> None:
    """The new path follows the ports' reports at once; only packets sent before them are lost."""
    world, frame, route = carrying(seed)
    failed = route.path[1]
    world.set_link(failed, is_up=False)
    for _ in world.steps():
        assert world.where("h1", frame) in ("h16", f"lost at {failed}", f"lost at {failed.node}")
    assert world.where("h1", frame) == "h16" and failed not in route.path and world.is_placed("h1", frame)
    assert any(event.kind == "links lost" and "0 have no path" in event.text for event in world.events)
    unplaced = tcp("h1", "h16", 5, 5)
    assert not world.is_placed("h1", unplaced) and world.where("h1", unplaced) == "h16", "the default path, too"


def test_flows_are_re_placed_a_few_at_a_time_and_those_over_a_failed_link_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link fails while a new strategy places its flows again. No turn is long, and all flows have rules at last."""
    monkeypatch.setattr("barewire.sdn.controller.router.LOST_MAX", 3)
    monkeypatch.setattr("barewire.sdn.controller.router.MOVED_MAX", 1)
    world = acquainted()
    for number in range(20):
        world.send("h1", tcp("h1", "h16", number, 7))
        world.settle()
    controller, failed = world.controller, Port("s13", 3)
    router = controller.router
    monkeypatch.setattr(controller, "poll", partial(controller.poll, has_time=lambda _: False))
    controller.set_strategy("default", "ecmp", world.now)
    waiting = router.moving

    def affected() -> int:
        return sum(len(router.routes.over(port)) for port in (failed, world.network.peers[failed]))

    left = [affected()]
    assert left[0] > 9 and waiting > 15
    world.set_link(failed, is_up=False)
    while world._said:
        world._hear()
    left.append(affected())
    while left[-1]:
        assert router.moving == waiting + left[-1]
        world.turn()
        left.append(affected())
    assert all(later == max(sooner - 3, 0) for sooner, later in pairwise(left))
    world.settle()
    assert not router.moving and {route.why for route in router.routes if route.key.destination == "h16"} == {
        "hash at each switch"
    }
    for number in range(20):
        frame = tcp("h1", "h16", number, 7)
        assert world.where("h1", frame) == "h16" and world.is_placed("h1", frame)
    assert any(f"{left[0]} flows re-placed, 0 have no path" in event.text for event in world.events)


def test_a_reservation_for_a_flows_lifetime_ends_when_the_flow_leaves_its_path() -> None:
    """By a failed link, by another strategy, and with the flow; without a flow no path is reserved."""
    world = World(fat_tree(4, servers=0), quiet(hold_first_s=0.2), Policy({"default": "isolated:seconds=inf"}, ()))
    world.stand_up()
    for source, destination in (("h1", "h16"), ("h16", "h1")):
        world.send(source, tcp(source, destination))
        world.settle()
    world.pass_time(1.0)
    router = world.controller.router
    paths = shortest_paths(world.network, "h1", "h16")

    def next_path() -> Path:
        """Place a flow, and forget it: it goes by the first path that is not reserved."""
        world.send("h1", tcp("h1", "h16", 7, 7))
        world.settle()
        route = router.routes.get(FlowKey("h1", "h16", "tcp", 7, 7))
        assert route is not None
        path = route.path
        router.remove(route)
        world.settle()
        return path

    world.send("h1", tcp("h1", "h16", 5, 5))
    world.settle()
    first = router.routes.get(FlowKey("h1", "h16", "tcp", 5, 5))
    assert first is not None and first.path == paths[0] and next_path() == next_path() == paths[1]
    for is_up in (False, True):
        world.set_link(paths[0][1], is_up)
        world.pass_time(1.5)
    assert first.path != paths[0] and next_path() == paths[0]
    world.controller.set_strategy("default", "stp", world.now)
    world.settle()
    world.controller.set_strategy("mpi", "isolated:seconds=inf", world.now)
    world.controller.jobs.add(parse_job({"profile": "mpi", "hosts": ["h1", "h16"]}, world.network.hosts), world.now)
    world.controller.jobs_changed(world.now)
    world.settle()
    assert first.path == paths[0] and next_path() == paths[1]
    router.remove(first)
    assert next_path() == paths[0] and not router.view(world.now).reservations


@pytest.mark.parametrize("seconds", ["2", "inf"])
def test_reservations_are_known_without_looking_at_all_flows(seconds: str) -> None:
    """After every change of flows they are those that a strategy would collect from all flows by itself."""
    world = World(fat_tree(4, servers=0), quiet(), Policy({"default": f"isolated:seconds={seconds}"}, ()))
    world.stand_up()
    router, chance = world.controller.router, random.Random(seconds)

    def agree() -> None:
        view = router.view(world.now)
        ends = {switches: until_s for switches, until_s in _reserved(view).items() if until_s > world.now}
        assert view.reserved == ends and view.snapshot().reserved is None

    for number in range(60):
        source, destination = chance.sample(world.network.hosts, 2)
        world.send(source, tcp(source, destination, number, 7, chance.getrandbits(16)))
        world.settle()
        agree()
        routes = list(router.routes)
        if routes and number % 3 == 2:
            router.remove(chance.choice(routes))
        elif routes:
            router.replace(chance.choice(routes), world.now)
        agree()
        world.pass_time(0.2)
    assert router.view(world.now).reserved
    for route in router.routes:
        router.remove(route)
    world.pass_time(2.1)
    agree()
    assert not router.routes.reservations._ends and not router.routes.reservations._latest


def test_a_silently_dead_link_is_detected_by_probes() -> None:
    """Both ports stay up, but nothing gets through: three probes are missed."""
    world, frame, route = carrying()
    hole = route.path[1]
    world.cut |= {hole, world.network.peers[hole]}
    world.pass_time(world.settings.probe_s * (world.settings.probes_lost + 2))
    assert world.where("h1", frame) == "h16" and hole not in route.path
    assert world.controller.hosts.by_name["h1"].port == world.network.attachment("h1"), "no host has moved"


def test_a_flow_without_a_path_is_removed_and_placed_again_with_the_link() -> None:
    world, frame, _ = carrying(hold_first_s=0.2)
    uplinks = [Port("s13", 3), Port("s13", 4)]
    for port in uplinks:
        world.set_link(port, is_up=False)
    world.settle()
    assert world.controller.router.routes.get(TCP_KEY) is None
    assert not world.is_placed("h1", frame)
    for port in uplinks:
        world.set_link(port, is_up=True)
    world.pass_time(1.5)
    world.send("h1", frame)
    world.settle()
    assert world.where("h1", frame) == "h16"


def test_the_hold_off_of_a_flapping_link_grows() -> None:
    world = acquainted()
    port = Port("s13", 3)
    waits = []
    for _ in range(4):
        world.set_link(port, is_up=False)
        world.settle()
        world.set_link(port, is_up=True)
        began = world.now
        while port not in world.controller.discovery.peers:
            world.pass_time(0.25)
            assert world.now < began + 60
        waits.append(world.now - began)
    assert waits[0] >= 1 and all(later >= 1.5 * sooner for sooner, later in pairwise(waits))
    world.pass_time(120, tick_s=0.25)
    world.set_link(port, is_up=False)
    world.settle()
    world.set_link(port, is_up=True)
    world.pass_time(1.5)
    assert port in world.controller.discovery.peers, "what has been up for long is forgiven"


def test_a_switch_that_restarts_gets_its_rules_back() -> None:
    world, frame, route = carrying()
    middle = route.path[2].node
    world.restart_switch(middle)
    world.settle()
    world.pass_time(1)
    assert world.where("h1", frame) == "h16" and route.path[2].node == middle, (
        "back before its grace ended: nothing moved"
    )


def test_a_switch_that_restarts_gets_its_rules_back_a_few_flows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that still wait have not ended because the switch does not count them."""
    monkeypatch.setattr("barewire.sdn.controller.reconciliation.COMPARED_MAX", 3)
    world = acquainted()
    frames = [tcp("h1", "h16", number + 1, 7) for number in range(20)]
    for frame in frames:
        world.send("h1", frame)
        world.settle()
    controller, sent = world.controller, list[int]()
    flows = {route.number for route in controller.router.routes.at("s13") if "s13" in route.installed}
    poll = controller.poll

    def counting(now: float) -> Mapping[str, list[ToSwitch]]:
        if sum(sent) < len(flows):
            controller._ask_flows_of("s13", now)
        messages = poll(now, lambda _: False)
        rules = [one.rule for one in messages.get("s13", ()) if isinstance(one, AddRule)]
        sent.append(sum(kind_of(rule.cookie) is Kind.FLOW for rule in rules))
        return messages

    monkeypatch.setattr(controller, "poll", counting)
    world.restart_switch("s13")
    world.pass_time(1)
    assert max(sent) <= 6 and sum(sent) == len(flows) > 20, "when it is compared, and once more in that turn"
    assert {route.number for route in controller.router.routes.at("s13")} >= flows
    assert all(world.is_placed("h1", frame) and world.where("h1", frame) == "h16" for frame in frames)


def comparing(monkeypatch: pytest.MonkeyPatch, then: Callable[[World, dict[int, Any]], None]) -> World:
    """A network whose s13 has connected again; `then` is called once while its flows are compared, with what is left.

    One flow is compared in each turn.
    """
    monkeypatch.setattr("barewire.sdn.controller.reconciliation.COMPARED_MAX", 1)
    world = acquainted()
    for number in range(5):
        world.send("h1", tcp("h1", "h16", number + 1, 7))
        world.settle()
    controller, left = world.controller, list[dict[int, Any]]()
    poll = controller.poll

    def one_at_a_time(now: float) -> Mapping[str, list[ToSwitch]]:
        messages = poll(now, lambda _: False)
        comparison = controller.reconciliation._comparing.get("s13")
        if comparison is not None and not left:
            left.append(comparison.found)
            then(world, comparison.found)
        return messages

    monkeypatch.setattr(controller, "poll", one_at_a_time)
    world.disconnect("s13")
    world.connect("s13")
    world.pass_time(1)
    assert left
    return world


def test_a_flow_that_ends_while_its_switch_is_compared_is_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules, which were found there, are deleted by then."""
    ended: list[Route] = []

    def end(world: World, left: dict[int, Any]) -> None:
        routes = world.controller.router.routes
        ended.extend(route for number in left if (route := routes.numbered(number)) is not None)
        for route in ended:
            world.controller.router.remove(route)

    world = comparing(monkeypatch, end)
    assert len(ended) > 1 and not any(world.controller.router.routes.numbered(route.number) for route in ended)
    assert "rules taken over" not in {event.kind for event in world.events}


def test_a_switch_that_disconnects_while_it_is_compared_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    world = comparing(monkeypatch, lambda world, _: world.disconnect("s13"))
    said = [event.kind for event in world.events if event.text.startswith("s13")]
    assert said[-1] == "switch lost" and not world.controller.reconciliation.is_comparing("s13")
    assert not any(route.is_being_installed for route in world.controller.router.routes)
    world.connect("s13")
    world.pass_time(1)
    assert [event.kind for event in world.events if event.text.startswith("s13")][-1] == "switch ready"


def test_a_flow_that_is_younger_than_a_late_answer_with_counters_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a switch asked again before it has answered."""
    world, _, route = carrying()
    answer, late = world._answer, list[tuple[float, str, FromSwitch]]()

    def held(switch: FakeSwitch, asked: Request) -> None:
        answer(switch, asked)
        if asked.question is RequestKind.RULE_COUNTERS and switch.name == route.path[0].node:
            late.append(world._said.pop())

    monkeypatch.setattr(world, "_answer", held)
    world.pass_time(2.1)
    world.send("h1", tcp("h1", "h16", 7, 7))
    world.pass_time(4.2)
    assert len(late) == 1
    world._said.append(late[0])
    world.settle()
    assert world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 7, 7)) is not None
    world.pass_time(2.1)
    assert len(late) == 2


def test_flows_of_a_switch_that_restarts_have_not_ended_because_it_counts_none() -> None:
    """It is asked for counters before its table was compared."""
    world, frame, route = carrying()
    world.restart_switch(route.path[0].node)
    while world._said:
        world._hear()
    world.now += 0.01
    world.controller._ask_flows_of(route.path[0].node, world.now)
    world.settle()
    assert world.controller.router.routes.get(TCP_KEY) is route and world.is_placed("h1", frame)


def test_flows_are_routed_around_a_disconnected_switch() -> None:
    world, frame, route = carrying()
    gone = route.path[2].node
    world.disconnect(gone)
    world.pass_time(1)
    assert route.path[2].node == gone and world.where("h1", frame) == "h16", "it goes on forwarding"
    world.pass_time(world.settings.switch_grace_s)
    assert gone not in {port.node for port in route.path} and world.where("h1", frame) == "h16"


@pytest.mark.parametrize("leaves_s", [None, 2.5])
def test_nothing_is_kept_of_flows_that_were_routed_around_a_switch(leaves_s: float | None) -> None:
    """They leave it when it is given up, or shortly before, so that its rules are not deleted any more."""
    world, _, route = carrying()
    router, gone = world.controller.router, route.path[2].node
    world.disconnect(gone)
    if leaves_s is not None:
        world.pass_time(leaves_s)
        paths = router.network_state.paths.between("h1", "h16")
        router.move(route, _on(route.placed, next(path for path in paths if path[2].node != gone)))
    world.pass_time(world.settings.switch_grace_s + 1)
    assert gone not in {port.node for port in route.path} and route not in router.routes.at(gone)
    for one in router.routes:
        router.remove(one)
    assert not router.routes._through


def test_a_link_lost_while_its_switch_was_disconnected_is_avoided() -> None:
    """The other end does not report: a port can lose its link on one side only."""
    world, frame, route = carrying()
    hole = route.path[1]
    world.disconnect(hole.node)
    world.settle()
    world.cut |= {hole, world.network.peers[hole]}
    world.switches[hole.node].ports[hole.number] = False
    world.pass_time(1)
    assert hole in route.path
    world.connect(hole.node)
    world.settle()
    assert hole not in route.path and world.where("h1", frame) == "h16"


def test_a_link_lost_while_its_switch_connected_twice_is_avoided() -> None:
    """The switch drops again before it has said which ports it has."""
    world, frame, route = carrying()
    hole = route.path[1]
    world.disconnect(hole.node)
    world.settle()
    world.connect(hole.node)
    world._hear()
    world.disconnect(hole.node)
    world.settle()
    world.set_link(hole, is_up=False)
    world.pass_time(1)
    world.connect(hole.node)
    world.settle()
    assert hole not in route.path and world.where("h1", frame) == "h16"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_neighbours_that_reconnect_in_any_order_move_no_flow(is_reversed: bool) -> None:
    world, frame, route = carrying()
    path, neighbours = route.path, [route.path[1].node, route.path[2].node]
    for name in neighbours:
        world.disconnect(name)
        world.settle()
    for name in reversed(neighbours) if is_reversed else neighbours:
        world.connect(name)
        world.settle()
        world.pass_time(0.5)
    world.pass_time(world.settings.switch_grace_s + 1)
    assert route.path == path and world.where("h1", frame) == "h16"
    assert not any(event.kind == "links lost" for event in world.events)


def test_a_link_lost_while_both_its_switches_were_disconnected_is_avoided_once_one_is_back() -> None:
    world, frame, route = carrying()
    hole, other = route.path[1], route.path[2].node
    world.disconnect(hole.node, other)
    world.settle()
    world.set_link(hole, is_up=False)
    world.pass_time(1)
    world.connect(hole.node)
    world.settle()
    assert hole not in route.path and world.where("h1", frame) == "h16"


def test_links_to_a_dead_switch_fail_without_its_grace_period() -> None:
    world, frame, route = carrying()
    gone = route.path[1].node
    world.disconnect(gone)
    for port in world.network.ports[gone]:
        world.set_link(port, is_up=False)
    world.settle()
    assert gone not in {port.node for port in route.path} and world.where("h1", frame) == "h16"
    others = [host for host in world.network.hosts if host != "h1"]
    assert [world.where("h1", tcp("h1", host, 5, 5)) for host in others] == others, "the default path, too"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(2, 12))])
def test_traffic_continues_during_a_restart_of_the_controller_which_adopts_its_flows(seed: int) -> None:
    world = acquainted(seed)
    frames = {host: tcp(host, "h16", 7, 8) for host in ("h1", "h5", "h9", "h15")} | {"h3": llc("h3", "h12")}
    for host, frame in frames.items():
        world.send(host, frame)
    world.settle()
    world.pass_time(3)
    before = {route.key: (route.path, route.number) for route in world.controller.router.routes}
    world.disconnect(tell=False)
    world.start_controller()
    world.connect()
    for _ in world.steps():
        for host, frame in frames.items():
            assert world.where(host, frame) == ("h12" if host == "h3" else "h16")
    world.pass_time(2)
    after = {route.key: (route.path, route.number) for route in world.controller.router.routes}
    assert after == before
    since = world.controller.router.view(world.now).placed[FlowKey("h1", "h16", "tcp", 7, 8)].since_s
    assert 4 < world.now - since < 8, "how old it is, is known as well"
    assert world.controller.hosts.by_name["h16"].port == world.network.attachment("h16")


def test_flows_over_a_link_that_fails_without_a_controller_are_placed_again_by_the_next_one() -> None:
    world = acquainted()
    frame = tcp("h1", "h16", 7, 8)
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 7, 8))
    assert route is not None
    world.disconnect(tell=False)
    world.set_link(route.path[1], is_up=False)
    assert world.where("h1", frame).startswith("lost")
    world.start_controller()
    world.connect()
    world.pass_time(1.0)
    assert world.where("h1", frame) == "h16"
    world.send("h1", frame)
    world.settle()
    assert world.is_placed("h1", frame) and world.where("h1", frame) == "h16"


def test_a_link_that_is_found_late_after_a_restart_is_not_taken_for_the_end_of_a_path() -> None:
    """As on a busy machine: probes of the flow's last link between switches arrive after ports have settled."""
    world = acquainted()
    frame = tcp("h1", "h16", 7, 8)
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 7, 8))
    assert route is not None
    late = route.path[-2]
    ends = {late, world.network.peers[late]}
    world.disconnect(tell=False)
    world.start_controller()
    arrived = world.controller.discovery.probe_arrived
    world.controller.discovery.probe_arrived = (  # type: ignore[method-assign]
        lambda sender, receiver, now: not ends & {sender, receiver} and arrived(sender, receiver, now)
    )
    world.connect()
    world.pass_time(1.5)
    assert world.where("h1", frame) == "h16"
    assert world.controller.hosts.by_name["h16"].port == world.network.attachment("h16")
    world.controller.discovery.probe_arrived = arrived  # type: ignore[method-assign]
    world.pass_time(2)
    after = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 7, 8))
    assert after is not None and after.path == route.path and after.number == route.number
    assert world.where("h1", frame) == "h16"


def test_flows_are_adopted_a_few_at_a_time_also_of_a_switch_that_connects_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barewire.sdn.controller.reconciliation.ADOPTED_MAX", 3)
    world = acquainted()
    for number in range(20):
        for source, destination in (("h1", "h16"), ("h9", "h5")):
            world.send(source, tcp(source, destination, number + 1, 7))
            world.settle()
    before = {route.key: (route.number, route.path) for route in world.controller.router.routes}
    world.disconnect(tell=False)
    world.start_controller()
    controller = world.controller
    poll, known = controller.poll, [0]

    def counting(now: float) -> Mapping[str, list[ToSwitch]]:
        messages = poll(now, lambda _: False)
        known.append(len(controller.router.routes))
        if known[-1] == 3 and not world.switches[late].is_connected:
            world.connect(late)
        return messages

    monkeypatch.setattr(controller, "poll", counting)
    late = before[FlowKey("h9", "h5", "tcp", 1, 7)][1][0].node
    world.connect(*(name for name in world.switches if name != late))
    world.pass_time(2.0)
    assert max(later - sooner for sooner, later in pairwise(known)) == 3
    assert {route.key: (route.number, route.path) for route in controller.router.routes} == before
    told = [event.text for event in world.events if event.kind == "rules taken over"]
    assert len(told) == 2 and sum(int(text.split()[0]) for text in told) == len(before)


def restarted() -> tuple[World, int]:
    """A network that a controller without names of hosts connects to, and the number of flows that it will find."""
    world = acquainted()
    for number in range(15):
        world.send("h1", tcp("h1", "h16", number + 1, 7))
        world.settle()
    flows = len(world.controller.router.routes)
    world.disconnect(tell=False)
    world.controller = Controller(world.settings, world.policy, Hosts(), b"key", 1)
    world.connect()
    return world, flows


def test_a_flow_that_cannot_be_adopted_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, flows = restarted()
    adopt, tried = world.controller.router.adopt, []

    def fails(key: FlowKey, *known: Any) -> Route:
        tried.append(key)
        if len(tried) == 3:
            raise ZeroDivisionError
        return adopt(key, *known)

    monkeypatch.setattr(world.controller.router, "adopt", fails)
    with pytest.raises(ZeroDivisionError):
        world.pass_time(3)
    world.pass_time(3)
    assert {route.key for route in world.controller.router.routes} == set(tried) - {tried[2]}
    assert len(tried) == flows


@pytest.mark.parametrize("has_room_later", [True, False])
def test_found_flows_of_hosts_above_the_limit_are_adopted_once_there_is_room_or_deleted(
    monkeypatch: pytest.MonkeyPatch, has_room_later: bool
) -> None:
    world, flows = restarted()
    with monkeypatch.context() as patched:
        patched.setattr("barewire.sdn.controller.hosts.HOSTS_MAX", 0)
        world.pass_time(2 if has_room_later else world.settings.orphans_s + 2)
        assert not len(world.controller.router.routes)
    world.pass_time(2)
    assert len(world.controller.router.routes) == (flows if has_room_later else 0)
    entries = [entry for switch in world.switches.values() for entry in switch.table.values()]
    assert any(kind_of(entry.rule.cookie) is Kind.FLOW for entry in entries) is has_room_later


def test_rules_that_lead_nowhere_after_a_restart_are_deleted() -> None:
    world = acquainted()
    frame = tcp("h1", "h16", 7, 8)
    world.send("h1", frame)
    world.settle()
    route = world.controller.router.routes.get(FlowKey("h1", "h16", "tcp", 7, 8))
    assert route is not None
    entry = world.switches[route.path[1].node].table[route.matches[0]]
    world.disconnect(tell=False)
    entry.rule = replace(entry.rule, out=(99,))
    world.start_controller()
    world.connect()
    world.pass_time(world.settings.orphans_s + 1)
    assert not any(_has(world, name, route.number) for name in world.switches)
    assert not world.is_placed("h1", frame) and world.where("h1", frame) == "h16"


def test_foreign_rules_are_left_alone() -> None:
    world = World(fat_tree(4, servers=0))
    foreign = Rule(Match(eth_type=0x86DD), 7, 0x1234, (1,))
    world.switches["s1"].table[foreign.match, foreign.priority] = Entry(foreign, 0, world.now)
    world.stand_up()
    world.pass_time(world.settings.orphans_s + 1)
    assert world.switches["s1"].table[foreign.match, foreign.priority].rule == foreign


def test_a_host_that_moves_is_found_at_its_new_port() -> None:
    world, frame, _ = carrying()
    world.pass_time(2)
    # h16 is now at h2's port.
    there = world.network.attachment("h2")
    assert there is not None
    world.arrive(there, tcp("h16", "h1", 3, 3), 64)
    world.settle()
    assert world.controller.hosts.by_mac[mac("h16")].port == there
    world.send("h1", frame)
    world.settle()
    assert world.delivered[-1] == ("h2", frame), "at the port where h16 is now"


def test_hosts_that_are_found_in_one_turn_are_added_to_the_network_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first flows are placed at the end of that turn, by the network that has them."""
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    built, build = list[Controller](), Controller._network
    monkeypatch.setattr(Controller, "_network", lambda core: built.append(core) or build(core))
    frames = {host: tcp(host, "h1" if host != "h1" else "h2") for host in world.network.hosts}
    for host, frame in frames.items():
        world.send(host, frame)
    while world._said:
        world._hear()
    world.turn()
    assert len(built) == 1 and len(world.controller.router.routes) == 15, "h2 was not known yet for that of h1"
    world.settle()
    assert [host for host, frame in frames.items() if not world.is_placed(host, frame)] == ["h1"]


def test_a_flow_to_a_host_that_is_detached_in_the_same_turn_is_placed_once_it_is_back() -> None:
    """Copies of its packets are not held off, as those of a flow that has no path would be."""
    world = acquainted()
    there, frame = world.network.attachment("h16"), tcp("h1", "h16")
    assert there is not None
    world.controller.hosts.version += 1  # a host was found
    world.send("h1", frame)
    world.set_link(there, is_up=False)
    while world._said:
        world._hear()
    world.settle()
    world.set_link(there, is_up=True)
    world.pass_time(1)
    world.send("h1", frame)
    world.settle()
    assert world.is_placed("h1", frame) and world.controller.reception.counts["without a path"] == 0


def test_of_several_hosts_at_a_port_flows_of_the_named_one_are_placed() -> None:
    """As behind a bridge. The others' take the default path, which is said once."""
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    port = world.network.attachment("h1")
    assert port is not None
    world.send("h16", tcp("h16", "h1"))
    for number in range(3):
        frame = tcp("h1", "h16", number, 7)
        world.send("h1", frame[:6] + bytes([2, 0x99, 0, 0, 0, number]) + frame[12:])
        world.settle()
    world.send("h1", tcp("h1", "h16", 7, 7))
    world.settle()
    assert world.controller.network().attachment("h1") == port and world.is_placed("h1", tcp("h1", "h16", 7, 7))
    told = [event.text for event in world.events if event.text.startswith(f"several hosts are at {port}")]
    assert len(told) == 1


@pytest.mark.parametrize("is_connected", [False, True])
def test_hosts_are_not_kept_at_a_port_number_that_means_another_port(
    monkeypatch: pytest.MonkeyPatch, is_connected: bool
) -> None:
    """Nor learnt there from the rules that the switch still has."""
    world = acquainted()
    port = world.controller.hosts.by_name["h1"].port
    assert port is not None
    if is_connected:
        world.controller.handle(port.node, PortStatus(PortState(port.number, "another", True)), world.now)
    else:
        world.disconnect(port.node)
        world.settle()
        monkeypatch.setattr("fake_switches.PortState", lambda number, name, up: PortState(number, f"other-{name}", up))
        world.connect(port.node)
    world.pass_time(2)
    assert world.controller.hosts.by_name["h1"].port is None


def test_a_network_that_could_not_be_built_is_built_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world, frame, route = carrying()
    failed, build = route.path[1], Controller._network
    monkeypatch.setattr(Controller, "_network", lambda *_: 1 // 0)
    world.set_link(failed, is_up=False)
    with pytest.raises(ZeroDivisionError):
        world.settle()
    monkeypatch.setattr(Controller, "_network", build)
    world.settle()
    assert failed not in route.path and world.where("h1", frame) == "h16"


def _on(placed: Placed, path: Path) -> Placed:
    return replace(placed, path=path)


def _has(world: World, switch: str, number: int) -> bool:
    return any(entry.rule.cookie & 0xFFFF_FFFF == number for entry in world.switches[switch].table.values())


IMPORTS = """
import sys
from fake_switches import World, tcp
from barewire.sdn.classify.policy import Policy
from barewire.sdn.daemon import prepare_interpreter
from barewire.sdn.strategies.registry import OURS, PUBLISHED
from barewire.topology import fat_tree
assert "scipy.sparse" not in sys.modules, "otherwise this says nothing"
prepare_interpreter()
before = set(sys.modules)
for strategy in (one.name for one in (*OURS, *PUBLISHED)):
    world = World(fat_tree(4, servers=0), policy=Policy({"default": strategy}, ()))
    world.stand_up()
    for _ in range(2):
        for host in world.network.hosts:
            world.send(host, tcp(host, "h1" if host != "h1" else "h2"))
        world.settle()
    world.pass_time(2.5)
    assert len(world.controller.router.routes), strategy
print(sorted(set(sys.modules) - before))
"""


def test_no_flow_waits_for_an_import() -> None:
    """The event loop would stop for half a second, after which the other controller of a pair takes over."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
