# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ports and links without a controller around them: what a switch says, and when."""

import pytest

from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.statistics import PortRates
from barewire.sdn.openflow.messages import PortCounter, PortState
from barewire.topology import Network, Port, fat_tree


def test_a_port_status_of_a_switch_that_is_not_ready_stops_no_probes() -> None:
    """It has connected again, and ends before it has said which ports it has."""
    discovery = Discovery(Settings())
    for switch in ("s1", "s2"):
        discovery.switch_up(switch, [PortState(1, "up", True)], 0.0)
    discovery.switch_down("s1", 1.0)
    for is_up in (False, True):
        discovery.update_port("s1", PortState(1, "up", is_up), False, 1.5)
    assert Port("s1", 1) not in discovery.due_probes(2.0)
    discovery.forget("s1", 4.0)
    assert discovery.due_probes(5.0) == [Port("s2", 1)]


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_port_number_that_means_another_port_is_a_new_port(is_connected: bool) -> None:
    """A switch numbers its ports anew, while it is disconnected or connected."""
    discovery = Discovery(Settings())
    discovery.switch_up("s1", [PortState(1, "down", True)], 0.0)
    discovery.switch_up("s2", [PortState(1, "up", True), PortState(2, "host", True)], 0.0)
    one, other = Port("s1", 1), Port("s2", 1)
    for sender, receiver in ((one, other), (other, one)):
        discovery.probe_arrived(sender, receiver, 0.1)
    assert discovery.peers == {one: other, other: one} and discovery.edge_ports(1.0) == [Port("s2", 2)]
    exchanged = [PortState(1, "host", True), PortState(2, "up", True)]
    if is_connected:
        for port in exchanged:
            discovery.update_port("s2", port, False, 2.0)
    else:
        discovery.switch_down("s2", 1.5)
        discovery.switch_up("s2", exchanged, 2.0)
    assert not discovery.is_between_switches(other) and not discovery.peers
    assert not discovery.is_settled(other, 2.0) and other in discovery.edge_ports(2.5)
    assert set(discovery.due_probes(2.0)) >= {other, Port("s2", 2)}


def probed(discovery: Discovery, network: Network, now: float) -> int:
    """Let all due probes arrive; return how many there were."""
    due = discovery.due_probes(now)
    for port in due:
        discovery.probe_arrived(port, network.peers[port], now)
    return len(due)


def test_probing_many_switches_looks_at_all_links_only_when_one_may_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """80 switches that connected at different times are due at different times; a silent link fails all the same."""
    network = fat_tree(8, servers=0)
    switches = set(network.switches)
    links = {port: peer for port, peer in network.peers.items() if {port.node, peer.node} <= switches}
    between = Network(network.switches, (), links)
    discovery = Discovery(Settings())
    for number, switch in enumerate(network.switches):
        discovery.switch_up(switch, [PortState(port.number, "", True) for port in between.ports[switch]], number / 100)
    for turn in range(80, 200):
        probed(discovery, between, turn / 100)
    assert discovery.peers == links
    looked: list[float] = []
    update = Discovery._update

    def counted(self: Discovery, now: float) -> None:
        looked.append(now)
        update(self, now)

    monkeypatch.setattr(Discovery, "_update", counted)
    sent = sum(probed(discovery, between, turn / 100) for turn in range(200, 400))
    assert sent == 2 * len(links) and not looked
    silent = next(iter(links))
    for turn in range(400, 900):
        for port in discovery.due_probes(turn / 100):
            if port not in (silent, links[silent]):
                discovery.probe_arrived(port, links[port], turn / 100)
        if discovery.peers != links:
            break
    assert 7.4 < turn / 100 < 8.6 and links.keys() - discovery.peers.keys() == {silent, links[silent]}


def test_a_link_whose_probes_are_lost_in_both_directions_has_failed_once() -> None:
    """So it is used again a second after it returns, as after any first failure."""
    discovery = Discovery(Settings())
    for switch in ("s1", "s2"):
        discovery.switch_up(switch, [PortState(1, "", True)], 0.0)
    one, other = Port("s1", 1), Port("s2", 1)

    def both(now: float) -> None:
        for sender, receiver in ((one, other), (other, one)):
            discovery.probe_arrived(sender, receiver, now)

    both(0.1)
    assert discovery.peers
    discovery.due_probes(3.7)
    assert not discovery.peers
    both(4.0)
    discovery.due_probes(4.6)
    assert not discovery.peers
    discovery.due_probes(4.8)
    assert discovery.peers == {one: other, other: one}


def test_a_port_that_its_switch_no_longer_has_carries_nothing() -> None:
    rates = PortRates()
    for second in range(2):
        for switch in ("s1", "s2"):
            rates.counted(switch, [PortCounter(number, 100 * second, 0) for number in (1, 2)], float(second))
    rates.counted("s1", [PortCounter(1, 300, 0)], 2.0)
    assert rates.load_byte_s == {Port("s1", 1): 200.0, Port("s2", 1): 100.0, Port("s2", 2): 100.0}
    rates.forget("s2")
    assert rates.load_byte_s.keys() == rates.received_byte_s.keys() == {Port("s1", 1)}
