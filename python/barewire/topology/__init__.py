# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switched networks as data: created by the lab, discovered by the controller, used for routing by strategies."""

from barewire.topology.custom import load
from barewire.topology.document import from_json, to_json
from barewire.topology.dragonfly import dragonfly
from barewire.topology.fat_tree import fat_tree
from barewire.topology.leaf_spine import leaf_spine
from barewire.topology.network import Network, Path, Port, shortest_paths
from barewire.topology.parse import parse, with_rate
from barewire.topology.star import star

__all__ = [
    "Network",
    "Path",
    "Port",
    "dragonfly",
    "fat_tree",
    "from_json",
    "leaf_spine",
    "load",
    "parse",
    "shortest_paths",
    "star",
    "to_json",
    "with_rate",
]
