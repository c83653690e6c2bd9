# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The pure part of labs with switches: plans, rejections with a reason, pictures, and load."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barewire.cli.drawing import drawn_network, save_picture, table
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import LinkSpec, openvswitch, parse_topology
from barewire.lab.kernel import Process
from barewire.lab.load import Load, Moment, between, busy_before, moment
from barewire.lab.plan import End, Plan, hosts_file, plan_from_json
from barewire.lab.switched import interfaces_of_link, switched_plan
from barewire.topology import Network, Port, fat_tree, star
from barewire.topology.checks import check, find_loop
from barewire.topology.picture import counted, layers, svg

RATE_BIT_S = 25_000_000


def plan_of(network: Network, link: LinkSpec | None = None) -> Plan:
    return switched_plan("id", network, link or LinkSpec(RATE_BIT_S), {0, 1})


def named(ends: Sequence[End]) -> list[tuple[str | None, str]]:
    return sorted(((end.node, end.interface) for end in ends), key=str)


def linked(network: Network, *links: tuple[Port, Port]) -> Network:
    return replace(network, peers=dict(network.peers) | {a: b for pair in links for a, b in (pair, pair[::-1])})


@pytest.mark.parametrize("k", [2, 4, 8])
def test_names_and_addresses_are_unique_and_fit(k: int) -> None:
    plan = plan_of(fat_tree(k))
    ends = [end for wire in plan.wires for end in wire]
    assert plan.switched is not None
    bridges = [*plan.bridges, *plan.switched.cables]
    macs = [end.mac for end in ends] + [bridge.mac for bridge in bridges]
    names = [end.interface for end in ends if end.node is None] + [bridge.name for bridge in bridges]
    assert len(set(macs)) == len(macs) and len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in names), "IFNAMSIZ"
    assert len({host.address for host in plan.hosts} | {host.management for host in plan.hosts}) == 2 * len(plan.hosts)


def test_a_link_with_a_rate_is_a_cable_that_limits_both_directions_outside_its_nodes() -> None:
    """to-X limits what X receives; no interface through which a host or a switch sends is limited."""
    plan = plan_of(fat_tree(4))
    assert plan.switched is not None
    cables = plan.switched.cables
    assert plan.shaped == dict.fromkeys((port for cable in cables for port in cable.ports), RATE_BIT_S)
    assert len(cables) == 49 and ("to-h1", "to-s13-1") in [cable.ports for cable in cables]
    sending = {end.interface for wire in plan.wires for end in wire if not end.interface.startswith("to-")}
    assert {"eth0", "s13-1", "s5-1"} <= sending and not sending & set(plan.shaped)


def test_every_cable_has_a_drain_for_frames_from_switches() -> None:
    """The drain has its own interface, and receives no host's frames."""
    plan = plan_of(fat_tree(4))
    assert plan.switched is not None
    drains = [cable.drain for cable in plan.switched.cables]
    outside = {end.interface for wire in plan.wires for end in wire if end.node is None}
    assert len(set(drains)) == 49 and set(drains) <= outside
    sources = {port for cable in plan.switched.cables for port in cable.hosts}
    assert sources == {f"to-{host.name}" for host in plan.hosts}


def test_a_link_without_a_rate_is_one_wire() -> None:
    plan = plan_of(fat_tree(4), LinkSpec())
    assert [bridge.name for bridge in plan.bridges] == ["mgmt"] and plan.shaped == {}
    assert len(plan.wires) == 49 + 17


def test_a_rate_limits_the_sending_direction() -> None:
    """A link with a rate in one direction: only what s1 sends to h2 is limited."""
    plan = plan_of(replace(star(2), rates_bit_s={Port("s1", 2): 10**6}), LinkSpec())
    assert plan.shaped == {"to-h2": 10**6}


@pytest.mark.parametrize("rate_bit_s", [None, RATE_BIT_S])
def test_frames_are_lost_only_where_hosts_send(rate_bit_s: int | None) -> None:
    plan = plan_of(fat_tree(2), LinkSpec(rate_bit_s, loss=0.01))
    outside = {end.interface for wire in plan.wires for end in wire if end.node is None}
    assert set(plan.lossy) == {"to-h1", "to-h2", "to-server1"} and set(plan.lossy) <= outside


def test_the_management_network_is_separate_and_unlimited() -> None:
    plan = plan_of(fat_tree(2))
    management = next(bridge for bridge in plan.bridges if bridge.name == "mgmt")
    assert management.ports == ("mgmt-h1", "mgmt-h2", "mgmt-server1") and not set(management.ports) & set(plan.shaped)
    lines = hosts_file(plan.hosts).splitlines()
    assert {"10.77.0.3 server1", "10.78.0.3 server1-mgmt", "10.78.0.254 mgmt"} <= set(lines)


def test_a_plan_with_switches_survives_json() -> None:
    plan = switched_plan("id", fat_tree(4), LinkSpec(RATE_BIT_S, 9000), {0, 1}, neighbours=True)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.static_neighbours and not plan_of(star(2)).static_neighbours


@pytest.mark.parametrize(
    ("network", "link", "complaint"),
    [
        (star(254), LinkSpec(), "1 to 253 hosts"),
        (fat_tree(12), LinkSpec(), "1 to 253 hosts"),
        (star(2), LinkSpec(offloads=True), "has no offloads"),
        (star(2), LinkSpec(mtu=65501), "up to 65500"),
        (Network((), ("h1",), {}), LinkSpec(), "no switch"),
        (Network(("core",), (), {}), LinkSpec(), "'core' is not a switch"),
        (Network(("s1",), (), {}), LinkSpec(), "but this network has 0"),
        (Network(("s1",), ("s1-1",), {}), LinkSpec(), "'s1-1' is not a host"),
        (Network(("s1", "s2"), (), {}), LinkSpec(), "no links join s2 to s1"),
    ],
)
def test_networks_that_a_lab_does_not_support_are_rejected(network: Network, link: LinkSpec, complaint: str) -> None:
    with pytest.raises(WrongUse, match=complaint):
        plan_of(network, link)


def test_loops_are_rejected_only_without_a_controller() -> None:
    check(fat_tree(4))
    with pytest.raises(WrongUse, match="has a loop"):
        switched_plan("id", fat_tree(4), LinkSpec(), {0}, standalone=True)
    assert switched_plan("id", fat_tree(2), LinkSpec(), {0}, standalone=True).switched is not None
    two = Network(("s1", "s2"), (), {})
    one_link = linked(two, (Port("s1", 1), Port("s2", 1)))
    assert find_loop(one_link) == []
    assert sorted(find_loop(linked(one_link, (Port("s1", 2), Port("s2", 2))))[:2]) == ["s1", "s2"]


def test_a_link_is_found_by_its_nodes_or_its_ports() -> None:
    plan = plan_of(fat_tree(4))
    assert named(interfaces_of_link(plan, "s5", "s13")) == [(None, "to-s13-3"), (None, "to-s5-1")]
    assert named(interfaces_of_link(plan, "h1", "s13:1")) == [(None, "to-h1"), (None, "to-s13-1")]
    unshaped = plan_of(fat_tree(4), LinkSpec())
    assert named(interfaces_of_link(unshaped, "h1", "s13")) == [("s13", "s13-1")]
    assert named(interfaces_of_link(unshaped, "s5", "s13")) == [("s13", "s13-3"), ("s5", "s5-1")]
    with pytest.raises(WrongUse, match="no link from h1 to s14"):
        interfaces_of_link(plan, "h1", "s14")
    ends = [(Port("s1", number), Port("s2", number)) for number in (1, 2)]
    host = (Port("h1", 1), Port("s1", 9))
    parallel = plan_of(linked(Network(("s1", "s2"), ("h1",), {}), host, *ends))
    with pytest.raises(WrongUse, match="2 links join s1 to s2: give the port, one of s1:1, s1:2"):
        interfaces_of_link(parallel, "s1", "s2")
    assert named(interfaces_of_link(parallel, "s1:2", "s2")) == [(None, "to-s1-2"), (None, "to-s2-2")]


def test_ranks_go_to_hosts_and_not_to_servers() -> None:
    topology = parse_topology("fat-tree:4")
    assert str(topology) == "fat-tree:4" and topology.hosts[-1] == "server1"
    assert topology.workers == tuple(f"h{number}" for number in range(1, 17))
    assert parse_topology("star:2").workers == ("h1", "h2")


def test_without_open_vswitch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(openvswitch, "_SERVER_FOLDERS", ())
    with pytest.raises(MachineCannot, match="apt install openvswitch-switch") as refused:
        openvswitch.require()
    assert refused.value.exit_code == 3


def test_a_fat_tree_is_drawn_in_layers(tmp_path: Path) -> None:
    network = fat_tree(4)
    assert [len(row) for row in layers(network)] == [16, 8, 8, 4, 1]
    assert layers(network)[3] == ["s1", "s2", "s3", "s4"]
    assert counted(network) == "20 switches, 16 hosts, 1 server, 49 links"
    picture = ElementTree.fromstring(svg(network, "a <title>"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}line")) == 49 and len(picture.findall(f"{space}rect")) == 37
    assert table(network).row_count == 20
    save_picture(network, "fat-tree:4", tmp_path / "page.html", page=True)
    assert "server1" in (tmp_path / "page.html").read_text()
    save_picture(network, "\udcff – h1", tmp_path / "odd.html", page=True)
    assert "<title>\\udcff – h1</title>" in (tmp_path / "odd.html").read_text(encoding="utf-8")
    with pytest.raises(WrongUse, match="cannot be written"):
        save_picture(network, "fat-tree:4", tmp_path / "none" / "page.html", page=True)


@pytest.mark.parametrize(("text", "rows"), [("pair", [2]), ("star:3", [3, 1])])
def test_labs_without_open_vswitch_are_drawn_too(text: str, rows: list[int]) -> None:
    assert [len(row) for row in layers(drawn_network(parse_topology(text)))] == rows


def test_load_is_the_usage_between_two_moments() -> None:
    """100 ticks are a second. Of 400 ticks of both cores 300 were busy; the switches used 150."""
    load = between(Moment(10.0, 1000, 5000, 50), Moment(12.0, 1300, 5400, 200))
    assert load == Load(2.0, 0.75, 0.75) and not load.saturated
    assert between(Moment(0.0, 0, 0, 0), Moment(1.0, 90, 100, 0)).saturated
    with pytest.raises(ValueError, match="apart"):
        between(Moment(1.0, 0, 0, 0), Moment(1.0, 0, 0, 0))


@pytest.mark.parametrize(("busy_ticks", "sentence"), [(10, None), (60, "other programs used 60% of")])
def test_a_machine_is_busy_if_others_use_it_now(
    monkeypatch: pytest.MonkeyPatch, busy_ticks: int, sentence: str | None
) -> None:
    moments = iter([Moment(0.0, 500, 5000, 0), Moment(0.5, 500 + busy_ticks, 5100, 0)])
    monkeypatch.setattr("barewire.lab.load.moment", lambda: next(moments))
    said = busy_before(0.0)
    assert said is None if sentence is None else said is not None and sentence in said


def test_a_moment_counts_guests_once_and_only_the_given_processes(tmp_path: Path) -> None:
    """Of 100 ticks 50 are idle and 10 waiting, 40 busy, 5 of them stolen; user time includes the guests'."""
    (tmp_path / "stat").write_text("cpu  20 0 10 50 10 2 3 5 7 0\ncpu0 …\n")
    process = tmp_path / "7"
    process.mkdir()
    (process / "stat").write_text("7 (ovs vswitchd)) S " + " ".join(["0"] * 10 + ["30", "12"] + ["0"] * 6 + ["99"]))
    now = moment([Process(7, 99)], tmp_path)
    assert (now.busy_ticks, now.all_ticks, now.switches_ticks) == (40, 100, 42)
    for gone in (Process(7, 98), Process(8, 99)):
        with pytest.raises(MeasurementFailed, match="ended"):
            moment([gone], tmp_path)
