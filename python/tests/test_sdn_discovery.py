# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ports and links without a controller around them: what a switch says, and when."""

import pytest

from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.settings import Settings
from barewire.sdn.openflow.messages import PortState
from barewire.topology import Port


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
