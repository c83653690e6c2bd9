# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The network without its controller: default rules on switches in memory, and on any network."""

import random
from collections import Counter

import pytest
from fake_switches import World, acquainted, llc, mac, quiet, tcp
from test_sdn_bad_input import arp, ring

from barewire.sdn.controller.core import AGE_EVERY_S, Controller
from barewire.sdn.controller.default_path import DOWN_S, DefaultPath, next_hops, spanning_tree
from barewire.sdn.controller.hosts import Address, Hosts
from barewire.sdn.controller.rules import DEFAULT_TABLE, Kind, kind_of
from barewire.sdn.openflow.messages import AddRule, DeleteRule, PortState, PortStatus, RuleList
from barewire.topology import Network, Port, fat_tree
from barewire.topology.paths import _UNREACHABLE, Paths


def without_controller(world: World) -> None:
    """Kill the controller: nobody gets what switches send up, and nobody sends rules."""
    world.disconnect(tell=False)


def test_placed_flows_new_flows_and_neighbours_go_on_without_a_controller() -> None:
    """For ten minutes: a busy flow keeps its rules, a flow that was idle and new ones are forwarded by the switches."""
    world = acquainted(idle_s=20)
    busy, other = tcp("h1", "h16"), tcp("h3", "h12")
    for frame, host in ((busy, "h1"), (other, "h3")):
        world.send(host, frame)
        world.settle()
    without_controller(world)
    for _ in range(60):
        world.delivered.clear()
        world.send("h1", busy)
        assert world.delivered == [("h16", busy)]
        world.pass_time(10, tick_s=10)
    assert world.is_placed("h1", busy), "on the path that its strategy chose"
    assert not world.is_placed("h3", other) and world.where("h3", other) == "h12"
    for source, destination in (("h2", "h15"), ("h5", "h6"), ("h9", "h1")):
        assert world.where(source, tcp(source, destination, 7, 7)) == destination
    world.delivered.clear()
    world.send("h4", arp("h4", "10.77.0.99"))
    assert sorted(host for host, _ in world.delivered) == sorted(set(world.network.hosts) - {"h4"}), "each host, once"
    assert not world.lost


def test_a_host_that_was_never_seen_is_found_without_a_controller() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    without_controller(world)
    frame = tcp("h1", "h16")
    world.send("h1", frame)
    assert world.received("h16", frame) == 1 and len(world.delivered) == 15


def test_a_controller_that_restarts_knows_the_hosts_and_changes_no_default_rule() -> None:
    world = acquainted()
    world.send("h16", arp("h16", "10.77.0.1"))
    world.settle()
    without_controller(world)
    world.start_controller()
    world.connect()
    sent = []
    for _ in world.steps():
        sent += [message for switch in world.switches.values() for message in switch.inbox]
    for _ in range(30):
        world.now += 0.1
        for _ in world.steps():
            sent += [message for switch in world.switches.values() for message in switch.inbox]
    changes = [message for message in sent if isinstance(message, AddRule | DeleteRule)]
    assert changes == [], "all rules stand already"
    hosts = world.controller.hosts
    assert {host.name: host.port for host in hosts.attached()} == {
        host: world.network.attachment(host) for host in world.network.hosts
    }
    known = hosts.with_address("10.77.0.16")
    assert known is not None and known.name == "h16"


def test_after_a_restart_a_port_towards_a_switch_that_connects_late_is_no_hosts_port() -> None:
    """Nor is it flooded into. A host's port that comes up meanwhile is one at once."""
    world = acquainted()
    late, new = "s5", world.network.attachment("h2")
    [link] = [port for port in world.network.ports["s13"] if world.network.peers[port].node == late]
    assert new is not None
    without_controller(world)
    world.set_link(new, is_up=False)
    forget_copies(world, new)
    world.start_controller()
    world.connect(*(name for name in world.switches if name != late))
    world.pass_time(1)
    world.set_link(new, is_up=True)
    for _ in range(20):
        world.send("h16", tcp("h16", "h1", 7, 7))
        world.pass_time(0.1)
    hosts, edges = world.controller.hosts, set(world.controller.discovery.edge_ports(world.now))
    assert link not in edges and new in edges and world.network.attachment("h1") in edges
    assert not any(match.in_port == link.number for match, _ in world.switches["s13"].table)
    assert link.number not in flood_ports(world, "s13")
    assert all(host.port == world.network.attachment(host.name) for host in hosts.attached())
    world.connect(late)
    world.pass_time(2)
    assert link in world.controller.discovery.peers
    assert all(world.where("h1", tcp("h1", host, 9, 9)) == host for host in ("h3", "h9", "h16"))


def test_ports_that_nobody_knew_are_hosts_ports_some_time_after_a_restart() -> None:
    world = acquainted()
    there = world.network.attachment("h2")
    assert there is not None
    without_controller(world)
    forget_copies(world, there)
    world.start_controller()
    world.connect()
    world.pass_time(world.settings.orphans_s - 1)
    assert there not in world.controller.discovery.edge_ports(world.now)
    world.pass_time(2)
    world.send("h2", tcp("h2", "h1"))
    world.settle()
    assert world.controller.hosts.by_name["h2"].port == there


def test_a_link_that_fails_is_left_at_once_although_a_switch_connects_in_the_same_turn() -> None:
    """Whose links come in groups, and are waited for; while switches connect one by one, that would go on."""
    world = acquainted()
    assert 3 in {world.controller.default_path.installed_port("s13", mac(host)) for host in world.network.hosts}
    world.set_link(Port("s13", 3), is_up=False)
    while world._said:
        world._hear()
    world.controller.handle("s20", RuleList((), ()), world.now)
    world.settle()
    assert 3 not in {world.controller.default_path.installed_port("s13", mac(host)) for host in world.network.hosts}


def test_hosts_are_known_without_a_frame_where_they_are_expected() -> None:
    world = World(fat_tree(4, servers=0), quiet())
    expected = {mac(host): world.network.attachment(host) for host in world.network.hosts}
    world.controller.hosts.expected = {address: port for address, port in expected.items() if port is not None}
    world.stand_up()
    assert len(list(world.controller.hosts.attached())) == 16
    assert world.where("h1", tcp("h1", "h16")) == "h16", "not flooded"


def test_ports_that_come_up_together_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install_trees, times = DefaultPath._install_trees, []
    monkeypatch.setattr(DefaultPath, "_install_trees", lambda path, now: times.append(now) or install_trees(path, now))
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    assert times and len(times) == len(set(times)), "20 switches have connected at once"


def test_rules_to_hosts_that_are_found_together_are_installed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile no flow goes without its own rules."""
    monkeypatch.setattr("barewire.sdn.controller.default_path.SLICE_RULES", 60)
    world = World(fat_tree(4, servers=0), quiet())
    world.stand_up()
    controller, hop = world.controller, world.network.attachment("h16")
    assert hop is not None

    def turn() -> int:
        messages = controller.poll(world.now, lambda _: False)
        for switch, some in messages.items():
            world.switches[switch].inbox += some
        rules = [one.rule for some in messages.values() for one in some if isinstance(one, AddRule)]
        return sum(rule.table == DEFAULT_TABLE and rule.match.eth_dst is not None for rule in rules)

    for are_attached in (True, False):
        for host in world.network.hosts:
            port = world.network.attachment(host)
            assert port is not None
            if are_attached:
                controller.hosts.learn(mac(host), port, world.now)
            else:
                controller.hosts.forget_port(port)
        if are_attached:
            world.send("h1", llc("h1", "h16"))
            world._hear()
        assert not controller.default_path.carries(hop, "h16")
        sent = [turn()]
        (route,) = controller.router.routes
        assert route.installed.keys() == {port.node for port in route.path}, "found in the same turn as its hosts"
        assert not controller.default_path.carries(hop, "h16")
        sent += [turn() for _ in range(20)]
        assert max(sent) <= 60 and sum(sent) == (320 if are_attached else 0)
        assert controller.default_path.carries(hop, "h16") is are_attached
    world.settle()
    assert all(len(switch.default) == 1 for switch in world.switches.values()), "floods only"


def test_what_is_sent_to_a_host_whose_port_flaps_is_not_flooded() -> None:
    world = acquainted()
    there, frame = world.network.attachment("h16"), tcp("h1", "h16")
    assert there is not None
    world.set_link(there, is_up=False)
    world.pass_time(5)
    world.send("h1", frame)
    world.settle()
    assert not world.delivered and world.where("h1", frame) == f"lost at {there}"
    world.set_link(there, is_up=True)
    world.pass_time(1)
    assert world.controller.hosts.by_name["h16"].port == there, "without a frame of its own"
    world.send("h1", frame)
    world.settle()
    assert world.delivered == [("h16", frame)] and world.is_placed("h1", frame)


def test_a_host_that_comes_up_elsewhere_is_found_there_at_once() -> None:
    world = acquainted()
    there, other = world.network.attachment("h16"), world.network.attachment("h2")
    assert there is not None and other is not None
    world.set_link(there, is_up=False)
    world.pass_time(1)
    world.arrive(other, tcp("h16", "h1", 3, 3), 64)
    world.pass_time(1)
    assert world.controller.hosts.by_name["h16"].port == other
    world.set_link(there, is_up=True)
    world.pass_time(DOWN_S + 1, tick_s=1)
    assert world.controller.hosts.by_name["h16"].port == other
    assert rules_to(world, other.node, "h16")[0].out == (other.number,)


def test_rules_to_a_port_at_which_a_switch_comes_up_are_deleted() -> None:
    """Else they could lead round in a circle."""
    world = World(fat_tree(4, servers=0), quiet())
    link = Port("s13", 3)
    ends = {link, world.network.peers[link]}
    world.cut |= ends
    world.connect()
    world.settle()
    world.pass_time(0.5)
    world.arrive(link, tcp("h16", "h1"), 64)
    world.settle()
    assert rules_to(world, "s14", "h16")
    world.set_link(link, is_up=False)
    world.pass_time(1)
    assert rules_to(world, "s14", "h16")
    world.set_link(link, is_up=True)
    world.pass_time(1)
    assert link in world.controller.discovery.peers
    assert not any(rules_to(world, switch, "h16") for switch in world.switches)


def test_rules_to_hosts_that_are_gone_are_deleted() -> None:
    world = acquainted()
    there = world.network.attachment("h16")
    assert there is not None
    world.set_link(there, is_up=False)
    world.pass_time(DOWN_S + 1, tick_s=1)
    assert not any(rules_to(world, switch, "h16") for switch in world.switches)
    world.set_link(there, is_up=True)
    world.pass_time(1)
    frame = tcp("h1", "h16")
    world.send("h1", frame)
    assert world.received("h16", frame) == 1, "flooded until it speaks"


def test_no_host_is_learnt_from_a_rule_that_was_deleted_since() -> None:
    """An earlier controller had it at a port that was down for long: whatever comes up there may be another one."""
    world = acquainted(idle_s=1)
    world.pass_time(5)
    there = world.network.attachment("h16")
    assert there is not None
    without_controller(world)
    world.set_link(there, is_up=False)
    world.controller = Controller(world.settings, world.policy, Hosts(), b"key", 1)
    world.connect()
    world.pass_time(world.settings.orphans_s + AGE_EVERY_S + 1, tick_s=1)
    assert len(list(world.controller.hosts.attached())) == 15 and not rules_to(world, there.node, "h16")
    world.set_link(there, is_up=True)
    world.pass_time(1)
    assert there in world.controller.discovery.edge_ports(world.now)
    assert mac("h16") not in world.controller.hosts.by_mac and not rules_to(world, there.node, "h16")


def test_of_hosts_that_are_gone_only_their_own_rules_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of 16 hosts have 120 of 640 rules, which are deleted in one slice; then nothing is left to look at."""
    monkeypatch.setattr("barewire.sdn.controller.default_path.SLICE_RULES", 120)
    world = acquainted()
    for host in ("h1", "h5", "h9"):
        port = world.network.attachment(host)
        assert port is not None
        world.controller.hosts.forget_port(port)
    sent = [one for some in world.controller.poll(world.now).values() for one in some]
    deleted = [one.match for one in sent if isinstance(one, DeleteRule)]
    to_hosts = Counter(match.eth_dst for match in deleted if match.arp_target is None)
    assert to_hosts == {mac(host): 20 for host in ("h1", "h5", "h9")}
    assert len(deleted) == 120, "and as many for requests for their addresses"
    looked: list[object] = []
    monkeypatch.setattr("barewire.sdn.controller.default_path.mac_of", looked.append)
    world.controller.default_path.age(world.now + world.settings.orphans_s)
    world.controller.default_path.links_changed(world.controller.discovery.peers, world.now, is_urgent=True)
    world.settle()
    assert not looked


@pytest.mark.parametrize("is_connected", [True, False])
def test_copies_from_ports_that_are_gone_are_asked_for_no_more(is_connected: bool) -> None:
    world = acquainted()
    port = world.network.attachment("h1")
    assert port is not None
    switch = world.switches[port.node]

    def copied() -> set[int | None]:
        return {match.in_port for match, _ in switch.table} - {None}

    before = copied()
    assert port.number in before
    del switch.ports[port.number]
    if is_connected:
        gone = PortStatus(PortState(port.number, f"p{port.number}", is_up=False), is_gone=True)
        world.controller.handle(port.node, gone, world.now)
    else:
        world.disconnect(port.node)
        world.connect(port.node)
    world.pass_time(1)
    assert copied() == before - {port.number}


def test_default_paths_use_all_links_equally() -> None:
    """D-mod-k: every uplink of an edge switch leads to equally many of the hosts behind it."""
    world = acquainted()
    for edge in (f"s{number}" for number in range(13, 21)):
        ways = [rule.out[0] for host in world.network.hosts for rule in rules_to(world, edge, host)]
        assert sorted(ways.count(port) for port in (1, 2, 3, 4)) == [1, 1, 7, 7]
    cores = [rules_to(world, "s5", host)[0].out[0] for host in ("h5", "h6", "h7", "h8", "h9", "h10", "h11", "h12")]
    assert sorted(cores.count(port) for port in set(cores)) == [4, 4]


@pytest.mark.parametrize("seed", range(40))
def test_on_any_network_each_hop_is_nearer_and_the_tree_reaches_all_once(seed: int) -> None:
    network = some_network(random.Random(seed))
    distance = Paths(network)
    for end in network.switches:
        hops = next_hops(network.peers, end)
        for switch, (ports, _) in hops.items():
            for number in ports:
                following = network.peers[Port(switch, number)].node
                assert distance._distance(following, end) == distance._distance(switch, end) - 1
        assert hops.keys() == {switch for switch in network.switches if distance._distance(switch, end) < _UNREACHABLE}
    tree = spanning_tree(network.peers, network.switches)
    for start in network.switches:
        reached = flooded(network, tree, start)
        assert len(reached) == len(set(reached)) == len(next_hops(network.peers, start)), "once, and all"


def test_the_flood_checker_sees_loops_and_gaps() -> None:
    network = Network(("s1", "s2", "s3"), (), ring_of_three())
    everywhere = {switch: {port.number for port in network.ports[switch]} for switch in network.switches}
    assert len(flooded(network, everywhere, "s1")) > 3
    assert flooded(network, {switch: set() for switch in network.switches}, "s1") == ["s1"]


def test_a_tree_is_never_a_loop_while_links_fail_and_return() -> None:
    """After every single message, a broadcast reaches no host twice."""
    world = World(ring(), quiet(hold_first_s=0.1))
    world.stand_up()
    frame = tcp("h1", "h3")[6:]
    broadcast = b"\xff" * 6 + frame
    port = next(
        port for port in world.network.ports["s1"] if port.number in flood_ports(world, "s1") and port.number > 1
    )
    for is_up in (False, True, False, True):
        world.set_link(port, is_up)
        for _ in range(20):
            world.now += 0.05
            for _ in world.steps():
                send_unseen(world, "h1", broadcast)
                assert all(world.received(host, broadcast) <= 1 for host in ("h2", "h3"))
        send_unseen(world, "h1", broadcast)
        assert [world.received(host, broadcast) for host in ("h2", "h3")] == [1, 1]


def test_only_changed_hosts_are_reported_once() -> None:
    hosts = Hosts({"h1": "02:ba:7e:00:00:01"})
    assert hosts.take_changed() == []
    host = hosts.learn("02:ba:7e:00:00:01", Port("s1", 1), 0.0)
    assert host is not None and hosts.take_changed() == [host.mac] and hosts.take_changed() == []
    hosts.learn_address(host, Address(0, "10.0.0.1"), 0.0)
    hosts.learn_address(host, Address(0, "10.0.0.1"), 0.0)
    assert hosts.take_changed() == [host.mac]
    hosts.forget_port(Port("s1", 1))
    assert hosts.take_changed() == [host.mac]


def forget_copies(world: World, port: Port) -> None:
    """Delete a port's copy rules, as if an earlier controller had not known it."""
    table = world.switches[port.node].table
    for place in [place for place in table if place[0].in_port == port.number]:
        del table[place]


def send_unseen(world: World, host: str, frame: bytes) -> None:
    """Send a frame of which the controller gets no copy."""
    world.delivered.clear()
    said = len(world._said)
    world.send(host, frame)
    while len(world._said) > said:
        world._said.pop()


def rules_to(world: World, switch: str, host: str):  # type: ignore[no-untyped-def]
    """The default rules of a switch to a host."""
    rules = [entry.rule for entry in world.switches[switch].default.values()]
    return [rule for rule in rules if rule.match.eth_dst == mac(host) and kind_of(rule.cookie) is Kind.DEFAULT]


def flood_ports(world: World, switch: str) -> set[int]:
    """The ports out of which a switch floods."""
    entry = next(entry for (match, _), entry in world.switches[switch].default.items() if match.eth_dst is None)
    assert entry.rule.table == DEFAULT_TABLE
    return set(entry.rule.out)


def flooded(network: Network, tree: dict[str, set[int]], start: str) -> list[str]:
    """The switches that a broadcast reaches, as often as it does, up to a bound."""
    reached, waiting = [start], [(start, 0)]
    while waiting and len(reached) < 3 * len(network.switches):
        switch, came = waiting.pop()
        for number in tree[switch] - {came}:
            peer = network.peers[Port(switch, number)]
            reached.append(peer.node)
            waiting.append((peer.node, peer.number))
    return reached


def ring_of_three() -> dict[Port, Port]:
    links = [(Port(f"s{number}", 1), Port(f"s{number % 3 + 1}", 2)) for number in (1, 2, 3)]
    return dict(links) | {second: first for first, second in links}


def some_network(chance: random.Random) -> Network:
    """Any switches with any links, also parallel ones, also in parts."""
    switches = tuple(f"s{number}" for number in range(1, chance.randrange(3, 10)))
    peers: dict[Port, Port] = {}
    for number in range(chance.randrange(1, 20)):
        first, second = chance.sample(switches, 2)
        peers |= {Port(first, number + 1): Port(second, number + 1), Port(second, number + 1): Port(first, number + 1)}
    return Network(switches, (), peers)
