# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A flow simulator: the strategies of the controller on networks of any size, in simulated time."""

from barewire.sdn.simulate.engine import Engine
from barewire.sdn.simulate.experiment import AT_ONCE, WORKLOADS, Setup, experiment, simulations
from barewire.sdn.simulate.placement import placed_hosts
from barewire.sdn.simulate.ring import Ring, RingPlan
from barewire.sdn.simulate.series import Series
from barewire.sdn.simulate.shuffle import Shape, Shuffle
from barewire.sdn.simulate.training import Training, TrainingPlan

__all__ = [
    "AT_ONCE",
    "WORKLOADS",
    "Engine",
    "Ring",
    "RingPlan",
    "Series",
    "Setup",
    "Shape",
    "Shuffle",
    "Training",
    "TrainingPlan",
    "experiment",
    "placed_hosts",
    "simulations",
]
