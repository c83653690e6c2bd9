# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A flow simulator: the strategies of the controller on networks of any size, in simulated time."""

from barewire.sdn.simulate.engine import Engine
from barewire.sdn.simulate.experiment import WORKLOADS, Setup, experiment, simulations
from barewire.sdn.simulate.placement import placed_hosts
from barewire.sdn.simulate.ring import Ring, RingPlan
from barewire.sdn.simulate.series import Series
from barewire.sdn.simulate.shuffle import Shape, Shuffle

__all__ = [
    "WORKLOADS",
    "Engine",
    "Ring",
    "RingPlan",
    "Series",
    "Setup",
    "Shape",
    "Shuffle",
    "experiment",
    "placed_hosts",
    "simulations",
]
