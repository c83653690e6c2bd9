# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Labels name paths: their rules in switches in memory, and what spraying gives a simulated network."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from fake_switches import Entry, World, labelled, llc, mac, quiet, tcp

from barewire.sdn.api import documents
from barewire.sdn.classify.policy import Policy
from barewire.sdn.controller.labels import LabelTables
from barewire.sdn.controller.rules import Kind, kind_of, label_rules, last_label_rule
from barewire.sdn.fairness import max_min
from barewire.sdn.flow import Flow, FlowKey
from barewire.sdn.openflow.messages import Rule
from barewire.sdn.simulate import RingPlan, Setup, experiment
from barewire.sdn.simulate.control import Control
from barewire.sdn.simulate.policy import read_policy
from barewire.sdn.strategies import named
from barewire.sdn.strategies.labels import LABELS_MAX, Choice, Labels
from barewire.topology import Network, Port, fat_tree, shortest_paths, star
from barewire.topology.failures import failed

TREE = fat_tree(4, servers=0)
EDGES = [f"s{number}" for number in range(13, 21)]


def sprayed(seed: int = 1) -> World:
    """A fat-tree with all hosts learnt, whose profile mpi uses labels."""
    policy = Policy({"default": "stp", "mpi": "spray"}, ())
    world = World(TREE, quiet(), policy, seed=seed)
    world.stand_up()
    for host in TREE.hosts:
        world.send(host, tcp(host, "h1" if host != "h1" else "h2", 1, 1))
    world.settle()
    world.pass_time(1.0)
    return world


def test_labels_are_pending_from_a_change_until_switches_have_confirmed_their_rules() -> None:
    world = sprayed()
    controller = world.controller

    def offered() -> tuple[dict[str, str], bool]:
        policy = documents.policy(controller, world.now)
        return policy.labels, policy.labels_pending

    assert offered() == ({"mpi": "3840-3843"}, False)
    controller.set_strategy("mpi", "stp", world.now)
    assert offered() == ({}, True)
    world.settle()
    assert offered() == ({}, False)
    controller.set_strategy("mpi", "spray", world.now)
    assert offered()[1]
    world.settle()
    assert offered() == ({"mpi": "3840-3843"}, False)


def label_entries(world: World) -> dict[str, list[Rule]]:
    return {
        name: [entry.rule for entry in switch.table.values() if kind_of(entry.rule.cookie) is Kind.LABEL]
        for name, switch in world.switches.items()
    }


def path_of(world: World, source: str, destination: str, label: int) -> tuple[Port, ...]:
    """The ports that a labelled frame leaves from; it must arrive without its tag."""
    before = {name: dict(switch.sent) for name, switch in world.switches.items()}
    frame = llc(source, destination, is_jumbo=True)
    arrived = world.received(destination, frame)
    world.send(source, labelled(frame, label))
    assert world.received(destination, frame) == arrived + 1, (source, destination, label)
    ports = {
        Port(name, number)
        for name, switch in world.switches.items()
        for number, sent in switch.sent.items()
        if sent != before[name].get(number, 0)
    }
    return next(path for path in shortest_paths(TREE, source, destination) if set(path) == ports)


@pytest.mark.parametrize(("topology", "count"), [(TREE, 4), (fat_tree(6, servers=0), 9), (star(4), 1)])
def test_labels_name_all_shortest_paths(topology: Network, count: int) -> None:
    edges = {topology.peers[port].node for host in topology.hosts for port in topology.ports[host]}
    labels = Labels(topology, edges)
    assert labels.count == count
    source, destination = topology.hosts[0], topology.hosts[-1]
    paths = shortest_paths(topology, source, destination)
    end = topology.attachment(destination)
    assert end is not None
    found = set()
    for label in range(labels.count):
        walked, node = [], paths[0][0].node
        while node != end.node:
            walked.append(labels.towards(end.node)[node].hop(label))
            node = topology.peers[walked[-1]].node
        found.add((*walked, end))
    assert found == set(paths)


@pytest.mark.parametrize(
    ("width", "stride"), [*product((1, 2, 3, 4), (1, 2, 3, 4)), (16, 16), (8, 16), (2, 128), (128, 1), (24, 24)]
)
def test_rules_of_a_switch_send_each_label_to_its_hop(width: int, stride: int) -> None:
    """By bits of the label where they select the hop, else by a rule for each label; exactly one rule matches.

    None matches a VLAN that is no label, on networks with more paths than labels, too.
    """
    choice = Choice(tuple(Port("s1", number) for number in range(1, width + 1)), stride)
    count = min(width * stride, LABELS_MAX)
    rules = label_rules(mac("h1"), choice, count)

    def fitting(vlan: int) -> list[Rule]:
        masks = [(rule, rule.match.vlan or 0, rule.match.vlan_mask) for rule in rules]
        return [rule for rule, wanted, mask in masks if not (vlan ^ wanted) & (0xFFF if mask is None else mask)]

    for label in range(count):
        assert [rule.out for rule in fitting(0xF00 + label)] == [(choice.hop(label).number,)]
    assert not any(rule.pops_vlan for rule in rules)
    assert not any(fitting(vlan) for vlan in range(1, 0x1000) if vlan not in range(0xF00, 0xF00 + LABELS_MAX))


def test_labelled_frames_take_four_paths_without_a_rule_for_any_flow() -> None:
    world = sprayed()
    sent_up, rules = world.to_controller, label_entries(world)
    assert len({path_of(world, "h1", "h16", label) for label in range(4)}) == 4
    assert len({path_of(world, "h1", "h3", label) for label in range(4)}) == 2
    assert len({path_of(world, "h1", "h2", label) for label in range(4)}) == 1
    for source in TREE.hosts:
        for destination in TREE.hosts:
            if source != destination:
                path_of(world, source, destination, 3)
    assert world.to_controller == sent_up and label_entries(world) == rules
    # A rule for each host, or one for each uplink that leads to it.
    assert {len(found) for name, found in rules.items() if name in EDGES} == {2 + 14 * 2}


def test_a_permutations_frames_are_spread_evenly() -> None:
    """Each label's frames of a shift by one pod load all links between switches alike."""
    world = sprayed()
    hosts = TREE.hosts
    before = {name: dict(switch.sent) for name, switch in world.switches.items()}
    for number, source in enumerate(hosts):
        for label in range(4):
            path_of(world, source, hosts[(number + 4) % 16], label)
    uplinks = [
        switch.sent[number] - before[name].get(number, 0)
        for name, switch in world.switches.items()
        for number in switch.sent
        if TREE.peers[Port(name, number)].node in world.switches and switch.sent[number] != before[name].get(number, 0)
    ]
    assert len(uplinks) == 4 * 16 and len(set(uplinks)) == 1


def test_frames_without_a_label_and_of_senders_that_know_none_are_flows() -> None:
    world = sprayed()
    world.controller.set_strategy("default", "spray", world.now)
    world.send("h1", llc("h1", "h16"))
    world.settle()
    assert world.where("h1", llc("h1", "h16")) == "h16"
    route = next(route for route in world.controller.router.routes if route.key.protocol == "llc")
    assert route.why == "no label: hash at each switch"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(2, 10))])
def test_no_labelled_frame_loops_while_rules_change_and_all_arrive_afterwards(seed: int) -> None:
    """A link fails; a frame with each label is sent after every single message, and none may go round for ever."""
    world = sprayed(seed)
    broken = shortest_paths(TREE, "h1", "h16")[0][1]
    world.set_link(broken, False)
    frames = [labelled(llc("h1", "h16"), label) for label in range(4)]
    for _ in range(40):
        for _ in world.steps():
            assert all(world.where("h1", frame) != "loop" for frame in frames)
        world.pass_time(0.05)
    assert {world.where("h1", frame) for frame in frames} == {"h16"}
    world.set_link(broken, True)
    world.pass_time(3.0)
    assert len({path_of(world, "h1", "h16", label) for label in range(4)}) == 4


@pytest.mark.parametrize("name", ["s13", "s5"])
def test_a_switch_that_maps_labels_to_other_hops_than_told_delivers_them_all(name: str) -> None:
    """An edge switch, and an aggregation switch, that take the other uplink for each label."""
    world = sprayed()
    # Switches are numbered from the core to the edge.
    above = {switch for switch in TREE.switches if int(switch[1:]) < int(name[1:])}
    uplinks = [port.number for port in TREE.ports[name] if TREE.peers[port].node in above]
    other = dict(zip(uplinks, uplinks[1:] + uplinks[:1], strict=True))
    before = path_of(world, "h1", "h16", 0)
    for place, entry in world.switches[name].table.items():
        if kind_of(entry.rule.cookie) is Kind.LABEL and entry.rule.out[0] in other:
            rule = replace(entry.rule, out=(other[entry.rule.out[0]],))
            world.switches[name].table[place] = Entry(rule, world.now, world.now)
    assert len({path_of(world, "h1", "h16", label) for label in range(4)}) == 4
    assert path_of(world, "h1", "h16", 0) != before
    for source, label in product(TREE.hosts, range(4)):
        world.send(source, labelled(llc(source, "h16" if source != "h16" else "h1"), label))
    assert not world.lost


def test_a_switch_that_has_room_for_half_of_its_labels_rules_loses_no_frame() -> None:
    """Labelled frames without a rule there match the rules of flows, or take the default path; the operator is told."""
    world = sprayed()
    switch, wanted = world.switches["s13"], len(label_entries(world)["s13"])
    world.controller.set_strategy("mpi", "stp", world.now)
    world.pass_time(1.0)
    switch.capacity = len(switch.table) + wanted // 2
    world.controller.set_strategy("mpi", "spray", world.now)
    world.pass_time(30.0, tick_s=0.5)
    assert len(label_entries(world)["s13"]) == wanted // 2
    assert not world.controller.labels.is_being_installed
    assert any(event.kind == "switch refused" and "s13" in event.text for event in world.events)
    for host, label in product(TREE.hosts[1:], range(4)):
        assert world.where("h1", labelled(llc("h1", host), label)) == host
    for host, label in product(TREE.hosts[2:], range(4)):
        assert world.where(host, labelled(llc(host, "h1"), label)) == "h1"


def test_a_forged_label_or_source_reaches_no_other_host_and_no_controller() -> None:
    """Labels that nobody offered take one of the paths or none, and a foreign source moves no host."""
    world = sprayed()
    places = {host.name: host.port for host in world.controller.hosts.attached()}
    sent_up = world.to_controller
    frame, foreign = llc("h1", "h16"), llc("h2", "h16")
    for label in range(LABELS_MAX):
        assert world.where("h1", labelled(frame, label)) == "h16"
        arrived = world.received("h16", foreign)
        world.send("h1", labelled(foreign, label))
        assert world.received("h16", foreign) == arrived + 1
    world.settle()
    assert world.to_controller == sent_up
    assert {host.name: host.port for host in world.controller.hosts.attached()} == places


def test_changes_that_overtake_each_other_leave_the_rules_of_the_last() -> None:
    """A second link fails before any switch has confirmed the deletions after the first."""
    world = sprayed()
    labels, edges = world.controller.labels, frozenset(EDGES)
    ends = [str(shortest_paths(TREE, *pair)[0][1]) for pair in (("h1", "h16"), ("h9", "h16"))]
    labels.update(failed(TREE, ends[:1]), edges)
    labels.update(failed(TREE, ends), edges)
    world.settle()
    found = {name: sorted(map(str, rules)) for name, rules in label_entries(world).items()}
    assert found == {name: sorted(map(str, labels.rules_at(name))) for name in world.switches}
    assert not labels.is_being_installed


def test_labels_outlive_their_controller_and_its_successor_keeps_them() -> None:
    """The rules have no time-outs; a new controller learns from them where hosts are, and deletes no right one."""
    world = sprayed()
    rules = label_entries(world)
    assert all(rule.idle_s == rule.hard_s == 0 for found in rules.values() for rule in found)
    world.disconnect(tell=False)
    world.pass_time(600.0, tick_s=60.0)
    assert {path_of(world, "h1", "h16", label) for label in range(4)} == set(shortest_paths(TREE, "h1", "h16"))
    world.start_controller()
    world.connect()
    for _ in range(60):
        world.pass_time(0.25)
        assert world.where("h1", labelled(llc("h1", "h16"), 2)) == "h16"
    assert {host.name for host in world.controller.hosts.attached()} == set(TREE.hosts)
    assert sorted(map(str, label_entries(world)["s1"])) == sorted(map(str, rules["s1"]))


def test_a_successor_deletes_wrong_labels_without_listing_all_of_a_switch_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count, not a time: a switch's intended rules are listed once, when it connects."""
    world = sprayed()
    right = label_entries(world)
    stale = last_label_rule("02:ba:7e:00:00:99", 1)
    world.switches["s1"].table[stale.match, stale.priority] = Entry(stale, world.now, world.now)
    world.disconnect(tell=False)
    rules_at, listed = LabelTables.rules_at, []
    monkeypatch.setattr(
        LabelTables, "rules_at", lambda tables, switch: listed.append(switch) or rules_at(tables, switch)
    )
    world.start_controller()
    world.connect()
    world.pass_time(world.settings.orphans_s - 1, tick_s=0.25)
    assert stale in label_entries(world)["s1"]
    world.pass_time(2.0, tick_s=0.25)
    found = {name: sorted(map(str, rules)) for name, rules in label_entries(world).items()}
    assert found == {name: sorted(map(str, rules)) for name, rules in right.items()}
    assert sorted(listed) == sorted(world.switches)


def test_a_policy_without_spraying_has_no_rules_of_labels() -> None:
    world = sprayed()
    world.controller.set_strategy("mpi", "ecmp", world.now)
    world.pass_time(1.0)
    assert not any(label_entries(world).values())
    world.controller.set_strategy("mpi", "spray", world.now)
    world.pass_time(1.0)
    assert all(label_entries(world).values())


def test_a_switch_that_restarts_gets_its_labels_again() -> None:
    world = sprayed()
    rules = label_entries(world)["s5"]
    world.restart_switch("s5")
    world.settle()
    world.pass_time(2.0)
    assert sorted(map(str, label_entries(world)["s5"])) == sorted(map(str, rules))


def test_the_policy_names_the_labels_of_profiles_whose_strategy_uses_them() -> None:
    world = sprayed()
    assert documents.policy(world.controller, world.now).labels == {"mpi": "3840-3843"}


def test_shares_of_links_are_filled_max_min_fairly() -> None:
    """Two flows over halves of two links beside one that takes one link alone."""
    links = [np.array([0, 1]), np.array([0, 1]), np.array([0])]
    half = np.array([0.5, 0.5])
    rates = max_min(links, np.array([1.0, 1.0]), [half, half, None])
    assert rates == pytest.approx([0.5, 0.5, 0.5])
    assert max_min([np.array([0, 1])], np.array([1.0, 1.0]), [half]) == pytest.approx([2.0])
    with pytest.raises(ValueError, match="sends nothing"):
        max_min([np.array([0])], np.array([1.0]), [np.array([0.0])])


def test_a_sprayed_flow_counts_on_each_link_by_its_part_until_it_is_idle() -> None:
    """Between pods: s13 has two ways up, its aggregation switches four, and so on down to the host."""
    control = Control(fat_tree(4), read_policy("spray"))
    sprayed_key, other = FlowKey("h1", "h16"), FlowKey("h1", "h16", source_port=2)
    control.use(Flow(sprayed_key, "mpi"), 0.0, ())
    links, shares = control.links(sprayed_key), control.shares(sprayed_key)
    assert shares is not None and control.paths.ports[links[0]] == Port("h1", 1)
    assert sorted(shares.tolist()) == [0.25] * 8 + [0.5] * 4 + [1.0] * 2
    assert control._crossing.array[links[1:]] == pytest.approx(shares[1:])
    assert control._crossing.array.sum() == pytest.approx(5)
    control.use(Flow(other, "bigdata"), 0.0, ())
    assert control.shares(other) is None and control._crossing.array.sum() == pytest.approx(10)
    nothing = np.zeros(len(control.capacity))
    control.measure(2.0, nothing, {other: 1e9})
    assert control._crossing.array.sum() == pytest.approx(5), "only the other still sends"
    control.measure(30.0, nothing, {})
    assert not control._crossing.array.any(), "both are forgotten"


def test_sprayed_permutations_and_rings_reach_the_bound_without_being_announced() -> None:
    setup = Setup(fat_tree(4), RingPlan(measurements=1, exchanges=1))  # later ones are the same
    for workload in ("permutation", "ring"):
        series = experiment(setup, workload, ["ecmp", "spray"], [16], 3, lambda _: None)
        shares = {one.strategy: np.mean(np.array(one.values) / np.array(one.bound)) for one in series[:2]}
        assert shares["spray"] == pytest.approx(1.0, abs=0.01)
        assert shares["ecmp"] < 0.7


def test_spray_is_a_strategy_beside_the_others() -> None:
    assert replace(named("spray:basis=3")).name == "spray"  # type: ignore[type-var]
