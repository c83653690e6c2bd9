# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ports and links without a controller around them: what a switch says, and when."""

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
