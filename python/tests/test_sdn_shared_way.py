# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Flows have no rule where only one way leads on: which rules they have, and their packets' paths as links come and go.

On switches in memory; `World.steps` executes single messages in any order that OpenFlow allows.
"""

from itertools import pairwise

import pytest
from fake_switches import HOPS_MAX, World, quiet, tcp

from barewire.errors import WrongUse
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.rules import Kind, kind_of, number_of
from barewire.sdn.flow import FlowKey
from barewire.topology import Network, Path, Port, fat_tree
from barewire.topology.dragonfly import dragonfly
from barewire.topology.failures import without
from barewire.topology.leaf_spine import leaf_spine

NAMES = ["fat-tree", "leaf-spine", "dragonfly"]


def learnt(network: Network, seed: int = 1) -> World:
    """A network with all hosts learnt, whose flows are spread by their hashes."""
    world = World(network, quiet(), Policy({"default": "ecmp"}, ()), seed)
    world.stand_up()
    for host, other in pairwise([*world.network.hosts, world.network.hosts[0]]):
        world.send(host, tcp(host, other, 1, 1))
    world.settle()
    world.pass_time(1)
    return world


def placed(world: World, source: str, destination: str, port: int = 7) -> tuple[Route, bytes]:
    """Send a flow's first packet; return its route and the packet."""
    frame = tcp(source, destination, port, 8)
    world.send(source, frame)
    world.settle()
    [route] = [one for one in world.controller.router.routes if one.key.source_port == port]
    return route, frame


def rules_of(world: World, route: Route) -> dict[str, int]:
    """The output ports of a flow's rules, by switch."""
    return {
        name: entry.rule.out[0]
        for name, switch in world.switches.items()
        for entry in switch.table.values()
        if kind_of(entry.rule.cookie) is Kind.FLOW and number_of(entry.rule.cookie) == route.number
    }


def followed(world: World, source: str, frame: bytes) -> Path:
    """The ports through which the switches send a frame now, up to a host, a cut link or a missing rule."""
    port, path = world.network.attachment(source), list[Port]()
    while port is not None and port.node in world.switches and len(path) < HOPS_MAX:
        entries = world.switches[port.node].actions(frame, port.number)
        if not entries or len(entries[-1].rule.out) != 1:
            break
        path.append(Port(port.node, entries[-1].rule.out[0]))
        port = None if path[-1] in world.cut else world.network.peers.get(path[-1])
    return tuple(path)


def between_switches(network: Network) -> list[Port]:
    ends = {port for port, peer in network.peers.items() if {port.node, peer.node} <= set(network.switches)}
    return sorted(port for port in ends if port < network.peers[port])


def stays_whole(world: World, link: Port) -> bool:
    """Whether all hosts reach each other without a link, and without those that are cut."""
    try:
        without(world.network, (), {*world.cut, link})
    except WrongUse:
        return False
    return True


@pytest.mark.parametrize(("destination", "hops", "rules"), [("h2", 1, 1), ("h3", 3, 1), ("h16", 5, 2)])
def test_flows_have_rules_in_their_first_switch_and_where_a_path_was_chosen(destination, hops, rules) -> None:
    """In a fat-tree: to the same switch, within the pod, to another pod."""
    world = learnt(fat_tree(4, servers=0))
    route, frame = placed(world, "h1", destination)
    assert len(route.path) == hops and followed(world, "h1", frame) == route.path
    assert rules_of(world, route) == {hop.node: hop.number for hop in route.path[:rules]}


def test_nothing_is_left_out_while_the_default_path_is_changing() -> None:
    world = learnt(fat_tree(4, servers=0))
    world.controller.default_path.links_changed(world.controller.discovery.peers, world.now, is_urgent=False)
    route, _ = placed(world, "h1", "h16")
    assert rules_of(world, route) == {hop.node: hop.number for hop in route.path}


def test_a_switch_without_room_for_the_default_path_has_rules_of_flows() -> None:
    """Their packets would be flooded there otherwise: after a restart, and for a new flow."""
    world = learnt(fat_tree(4, servers=0))
    route, frame = placed(world, "h1", "h16")
    core = route.path[2]
    world.switches[core.node].default_capacity = 1
    world.restart_switch(core.node)
    world.pass_time(2)
    assert any("refused" in event.text for event in world.events)
    assert rules_of(world, route)[core.node] == core.number and followed(world, "h1", frame) == route.path
    port = 20
    while True:
        later, frame = placed(world, "h1", "h16", port)
        assert followed(world, "h1", frame) == later.path
        if later.path[2] == core:
            break
        port += 1
    assert rules_of(world, later)[core.node] == core.number


@pytest.mark.parametrize("seconds", [2.0, 5.0])
@pytest.mark.parametrize("hop", [1, 2, 3])
def test_a_flow_loses_nothing_while_a_switch_of_its_path_has_no_controller(hop: int, seconds: float) -> None:
    """For less or more than its grace period: the switch goes on forwarding, and others still rely on it."""
    world = learnt(fat_tree(4, servers=0))
    route, frame = placed(world, "h1", "h16")
    path, gone = route.path, route.path[hop].node
    world.disconnect(gone)
    for _ in range(round(seconds / 0.1)):
        world.now += 0.1
        for _ in world.steps():
            assert world.where("h1", frame) == "h16"
    assert (route.path == path) is (seconds < world.settings.switch_grace_s)
    ways = [followed(world, "h1", tcp("h1", host, 5, 5)) for host in world.network.hosts if host != "h1"]
    assert any(port.node == gone for way in ways for port in way) is (route.path == path), "the default path, too"
    world.connect(gone)
    for _ in range(20):
        world.now += 0.1
        for _ in world.steps():
            assert world.where("h1", frame) == "h16"


@pytest.mark.parametrize("seed", range(4))
def test_a_second_way_that_is_found_changes_no_flows_path(seed: int) -> None:
    """With one core link of its switch a flow needs no rule there; before the default path uses another, it has."""
    world = learnt(fat_tree(4, servers=0), seed)
    route, frame = placed(world, "h1", "h16")
    up = route.path[1]
    peers, core = world.network.peers, {"s1", "s2", "s3", "s4"}
    [other] = [port for port in peers if port.node == up.node and port != up and peers[port].node in core]
    world.set_link(other, is_up=False)
    world.pass_time(1)
    alone, packet = placed(world, "h1", "h16", 99)
    while alone.path[1] != up:  # another uplink of the first switch
        alone, packet = placed(world, "h1", "h16", alone.key.source_port + 1)
    assert up.node not in rules_of(world, alone)
    path = alone.path
    world.set_link(other, is_up=True)
    for _ in range(20):
        for _ in world.steps():
            assert followed(world, "h1", packet) == path
        world.pass_time(0.1)
    assert rules_of(world, alone)[up.node] == up.number
    assert followed(world, "h1", frame) == route.path and not world.lost


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.matrix if seed in (2, 3, 4) else ()) for seed in range(6)]
)
@pytest.mark.parametrize("network", [fat_tree(4, servers=0), leaf_spine(4, 3, 2), dragonfly(3, 2, 1)], ids=NAMES)
def test_packets_take_the_paths_of_their_flows_after_any_links_were_pulled_and_plugged_in(network, seed) -> None:
    """And none is lost by a link that is plugged in, at any step."""
    world = learnt(network, seed)
    flows = {}
    for port in range(100, 112):
        source, destination = world.random.sample(world.network.hosts, 2)
        flows[port] = (source, destination, placed(world, source, destination, port)[1])
    links = between_switches(world.network)
    for _ in range(8):
        link = world.random.choice([link for link in links if link in world.cut or stays_whole(world, link)])
        is_up = link in world.cut
        world.set_link(link, is_up=is_up)
        for _ in world.steps():
            for source, destination, frame in flows.values():
                assert not is_up or world.where(source, frame) == destination
        world.pass_time(1.5)
        for port, (source, destination, frame) in flows.items():
            route = world.controller.router.routes.get(FlowKey(source, destination, "tcp", port, 8))
            assert world.where(source, frame) == destination
            assert route is not None and followed(world, source, frame) == route.path
