# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An emulated cluster of network namespaces on one machine: hosts, links and switches, removed without a trace."""

from barewire.lab.cluster import Lab
from barewire.lab.spec import LinkSpec, Topology, parse_delay, parse_loss, parse_topology
from barewire.lab.state import Host
from barewire.topology.rate import format_rate, parse_rate

__all__ = [
    "Host",
    "Lab",
    "LinkSpec",
    "Topology",
    "format_rate",
    "parse_delay",
    "parse_loss",
    "parse_rate",
    "parse_topology",
]
