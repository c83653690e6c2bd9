# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Routing strategies: pure functions of a flow, its shortest paths and a view of the network."""

from barewire.sdn.strategies.registry import named, names
from barewire.sdn.strategies.strategy import Placement, Strategy

__all__ = ["Placement", "Strategy", "named", "names"]
