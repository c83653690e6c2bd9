# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller of a simulated network: places and moves flows by the strategies of their profiles."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isinf

import numpy as np
from numpy.typing import NDArray

from barewire.errors import WrongUse
from barewire.sdn.flow import DEFAULT_PROFILE, Flow, FlowKey, Pattern, Placed, View
from barewire.sdn.simulate.workload import HPC
from barewire.sdn.strategies import Strategy
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.spray import uses_labels
from barewire.topology import Network, Path, Port

# A strategy for each profile; DEFAULT_PROFILE applies to the others.
Policy = Mapping[str, Strategy]


@dataclass(frozen=True)
class Timing:
    """Timing of the published controller: statistics once a second, idle rules expire after 20 s."""

    statistics_s: float = 1.0
    idle_s: float = 20.0


class Control:
    """Placed flows and the last statistics. The clock is the `now_s` of each call."""

    def __init__(self, network: Network, policy: Policy, timing: Timing) -> None:
        """Begin without flows. WrongUse for a policy without a default strategy."""
        if DEFAULT_PROFILE not in policy:
            raise WrongUse(f"a policy needs a strategy for '{DEFAULT_PROFILE}', for all other profiles")
        self.network = network
        self.timing = timing
        self.policy = policy
        self.strategies = list({id(strategy): strategy for strategy in policy.values()}.values())
        self.ports = sorted(network.peers)
        self.numbers = {port: number for number, port in enumerate(self.ports)}
        self.capacity = np.array([network.rate_byte_s(port) for port in self.ports])
        self.moves = 0
        self._placed: dict[FlowKey, Placed] = {}
        self._links: dict[FlowKey, NDArray[np.intp]] = {}
        self._shares: dict[FlowKey, NDArray[np.float64] | None] = {}
        self._owner: dict[FlowKey, Strategy] = {}
        self._used_s: dict[FlowKey, float] = {}
        self._crossing: Counter[Port] = Counter()
        self._reservations: dict[Path, float] = {}
        self._load: dict[Port, float] = {}
        self._received: dict[Port, float] = {}
        self._placements: Counter[FlowKey] = Counter()

    def links(self, key: FlowKey) -> NDArray[np.intp]:
        """Return the numbers of all sending ports on a placed flow's path, starting at its host."""
        return self._links[key]

    def shares(self, key: FlowKey) -> NDArray[np.float64] | None:
        """Return what part of a placed flow's traffic crosses each of its links; None: all of it."""
        return self._shares[key]

    def use(self, flow: Flow, now_s: float, patterns: tuple[Pattern, ...]) -> None:
        """Place a flow if it is not placed, for a packet sent now."""
        self._used_s[flow.key] = now_s
        if flow.key in self._placed:
            return
        paths = paths_of(self.network).between(flow.key.source, flow.key.destination)
        if not paths:
            raise WrongUse(f"the topology has no path from {flow.key.source} to {flow.key.destination}")
        if self._placements[flow.key]:
            # Its rules have expired, so the controller gets a packet from the middle of the flow.
            text = f"{flow.key}|{self._placements[flow.key]}"
            flow = replace(flow, identification=int.from_bytes(blake2b(text.encode(), digest_size=2).digest()))
        self._placements[flow.key] += 1
        strategy = self.policy.get(flow.profile, self.policy[DEFAULT_PROFILE])
        placement = strategy.place(flow, paths, self._view(now_s, patterns))
        until_s = now_s + placement.reserve_s if placement.reserve_s else 0.0
        self._owner[flow.key] = strategy
        self._placed[flow.key] = Placed(flow, placement.path, now_s, until_s)
        if until_s and not isinf(until_s):
            self._reservations[placement.path] = until_s
        self._crossing.update(placement.path)
        if uses_labels(strategy) and flow.profile == HPC:
            self._links[flow.key], self._shares[flow.key] = self._sprayed(flow.key.source, paths)
        else:
            self._links[flow.key] = self._numbered(flow.key.source, placement.path)
            self._shares[flow.key] = None

    def rearrange(self, strategy: Strategy, now_s: float, patterns: tuple[Pattern, ...]) -> bool:
        """Let a strategy rearrange its flows; return whether any moved."""
        fixed = frozenset(key for key, owner in self._owner.items() if owner is not strategy)
        moves = strategy.rearrange(replace(self._view(now_s, patterns), fixed=fixed))
        for key, path in moves.items():
            placed = self._placed[key]
            self._crossing.subtract(placed.path)
            self._crossing.update(path)
            self._placed[key] = replace(placed, path=path)
            self._links[key] = self._numbered(key.source, path)
        self.moves += len(moves)
        return bool(moves)

    def measure(self, now_s: float, sent: NDArray[np.float64], flows: Mapping[FlowKey, float]) -> None:
        """Update statistics: bytes that each port and flow sent since the last update."""
        interval_s = self.timing.statistics_s
        rates = {port: float(sent[number]) / interval_s for port, number in self.numbers.items()}
        self._load = rates
        self._received = {port: rates[peer] for port, peer in self.network.peers.items()}
        for key in [key for key, used_s in self._used_s.items() if now_s - used_s > self.timing.idle_s]:
            self._forget(key)
        for key, placed in self._placed.items():
            rate = flows.get(key, 0.0) / interval_s
            if rate != placed.rate_byte_s:
                self._placed[key] = replace(placed, rate_byte_s=rate)
            if rate:
                self._used_s[key] = now_s
        self._reservations = {path: until_s for path, until_s in self._reservations.items() if until_s > now_s}

    def _forget(self, key: FlowKey) -> None:
        self._crossing.subtract(self._placed[key].path)
        for known in (self._placed, self._links, self._shares, self._owner, self._used_s):
            del known[key]

    def _view(self, now_s: float, patterns: tuple[Pattern, ...]) -> View:
        return View(
            self.network,
            now_s,
            self._placed,
            self._load,
            self._received,
            patterns,
            self._crossing,
            reservations=self._reservations,
        )

    def _sprayed(self, source: str, paths: Sequence[Path]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The links of all paths, and the part of the traffic on each: frames take all paths in turns."""
        counts = Counter(number for path in paths for number in self._numbered(source, path).tolist())
        numbers = sorted(counts, key=lambda number: -counts[number])  # the host's own link first, as in `links`
        return np.array(numbers), np.array([counts[number] / len(paths) for number in numbers])

    def _numbered(self, source: str, path: Path) -> NDArray[np.intp]:
        uplink = next(port for port in self.network.ports[source] if self.network.peers[port].node == path[0].node)
        return np.array([self.numbers[port] for port in (uplink, *path)])
