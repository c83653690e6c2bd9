# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Re-placement of large flows by their natural demands. Source: Al-Fares et al. 2010 (Hedera).

New flows are placed by `ecmp`. Every `period_s`, flows above a tenth of their host's rate are large; their natural
demands are their max-min fair rates limited only by the hosts' links (approximated by Hedera's estimator); then a
scheduler assigns paths: `first-fit`, or `annealing` over one core switch per destination host.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from barewire.errors import WrongUse
from barewire.sdn.flow import Flow, FlowKey, View
from barewire.sdn.strategies.annealing import anneal
from barewire.sdn.strategies.balance import FlowDemand, Rows
from barewire.sdn.strategies.demands import is_large, natural_demands
from barewire.sdn.strategies.ecmp import Ecmp
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Network, Path, Port

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Hedera:
    """The paper's period is 5 s."""

    scheduler: str = "annealing"
    period_s: float = 5.0
    name: ClassVar[str] = "hedera"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if self.scheduler not in _SCHEDULERS:
            raise WrongUse(f"hedera's scheduler is {' or '.join(_SCHEDULERS)}, not '{self.scheduler}'")
        if not self.period_s > 0:
            raise WrongUse(f"hedera's period_s is above 0, not {self.period_s}")

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Place by hash until the flow's size is known."""
        return Ecmp().place(flow, paths, view)

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move large flows to paths where their natural demands fit."""
        large = [key for key, placed in view.placed.items() if is_large(key, placed, view.network)]
        if not large:
            return {}
        demands = natural_demands(view.network, [(key.source, key.destination) for key in large])
        routes = paths_of(view.network)
        base: defaultdict[Port, float] = defaultdict(float)
        keys: list[FlowKey] = []
        flows: list[FlowDemand] = []
        for key, demand in zip(large, demands, strict=True):
            present = view.placed[key].path
            paths = routes.between(key.source, key.destination)
            if key in view.fixed or present not in paths:
                for port in present:
                    base[port] += demand
            else:
                keys.append(key)
                flows.append(FlowDemand(paths, demand))
        present_paths = [view.placed[key].path for key in keys]
        hosts = [key.destination for key in keys]
        chosen = _SCHEDULERS[self.scheduler](view.network, flows, present_paths, hosts, base)
        return {
            key: path
            for key, path, present_path in zip(keys, chosen, present_paths, strict=True)
            if path != present_path
        }


def _first_fit(
    network: Network,
    flows: Sequence[FlowDemand],
    present: Sequence[Path],
    hosts: Sequence[str],
    base: Mapping[Port, float],
) -> list[Path]:
    """For each flow: its current path if the demand fits, else the first path where it fits, else unchanged."""
    numbered = Rows(network)
    used = numbered.of_ports(base)
    most = numbered.rate_byte_s * (1 + _ROUNDING)
    chosen: list[Path] = []
    for flow, path in zip(flows, present, strict=True):
        row = numbered.of_path(path)
        if (used[row] + flow.rate_byte_s > most[row]).any():
            rows = numbered.of(flow.paths)
            fits = np.flatnonzero((used[rows] + flow.rate_byte_s <= most[rows]).all(axis=1))
            if len(fits):
                row = rows[fits[0]]
        used[row] += flow.rate_byte_s
        chosen.append(numbered.path(row))
    return chosen


_Scheduler = Callable[
    [Network, Sequence[FlowDemand], Sequence[Path], Sequence[str], Mapping[Port, float]],
    list[Path],
]
_SCHEDULERS: Mapping[str, _Scheduler] = {"annealing": anneal, "first-fit": _first_fit}
