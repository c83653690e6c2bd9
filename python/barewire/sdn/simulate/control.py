# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller of a simulated network: places and moves flows by the strategies of their profiles."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import isinf

import numpy as np
from numpy.typing import NDArray

from barewire.errors import WrongUse
from barewire.sdn.flow import DEFAULT_PROFILE, Flow, FlowKey, Pattern, Placed, View
from barewire.sdn.reservations import Reservations
from barewire.sdn.simulate.workload import HPC
from barewire.sdn.strategies import Strategy
from barewire.sdn.strategies.load import is_idle
from barewire.sdn.strategies.memo import paths_of
from barewire.sdn.strategies.spray import uses_labels
from barewire.topology import Network, Path
from barewire.topology.paths import PathSet, PortValues

# A strategy for each profile; DEFAULT_PROFILE applies to the others.
Policy = Mapping[str, Strategy]

# Of the published controller: the interval of statistics, and after what time idle rules expire.
STATISTICS_S, IDLE_S = 1.0, 20.0


class Control:
    """Placed flows and the last statistics. The clock is the `now_s` of each call."""

    def __init__(self, network: Network, policy: Policy, statistics_s: float = STATISTICS_S) -> None:
        """Begin without flows. WrongUse for a policy without a default strategy."""
        if DEFAULT_PROFILE not in policy:
            raise WrongUse(f"a policy needs a strategy for '{DEFAULT_PROFILE}', for all other profiles")
        self.network = network
        self.statistics_s = statistics_s
        self.policy = policy
        self.strategies = list({id(strategy): strategy for strategy in policy.values()}.values())
        self.paths = paths_of(network)
        self.capacity = self.paths.rate_byte_s
        self._peers = np.array([self.paths.numbers[network.peers[port]] for port in self.paths.ports], dtype=np.intp)
        # How often a flow has got another path.
        self.moves = 0
        self._placed: dict[FlowKey, Placed] = {}
        self._links: dict[FlowKey, NDArray[np.intp]] = {}
        self._shares: dict[FlowKey, NDArray[np.float64] | None] = {}
        self._owner: dict[FlowKey, Strategy] = {}
        self._used_s: dict[FlowKey, float] = {}
        nothing = np.zeros(len(self.capacity))
        self._crossing = PortValues(self.paths, nothing.copy())
        self._crossing_of: dict[str, PortValues] = {}
        self._load, self._received = PortValues(self.paths, nothing), PortValues(self.paths, nothing)
        self._reservations = Reservations()
        self._placements: Counter[FlowKey] = Counter()

    def is_placed(self, key: FlowKey) -> bool:
        """Return whether a flow has a path, which expires when it is idle."""
        return key in self._placed

    def links(self, key: FlowKey) -> NDArray[np.intp]:
        """Return the numbers of all sending ports on a placed flow's path, starting at its host."""
        return self._links[key]

    def shares(self, key: FlowKey) -> NDArray[np.float64] | None:
        """Return what part of a placed flow's traffic crosses each of its links; None: all of it."""
        return self._shares[key]

    def prepare(self, patterns: tuple[Pattern, ...]) -> None:
        """Let the strategies prepare for patterns, as the controller does."""
        for strategy in self.strategies:
            if (prepare := getattr(strategy, "prepare", None)) is not None:
                prepare(self.network, patterns)

    def use(self, flow: Flow, now_s: float, patterns: tuple[Pattern, ...]) -> None:
        """Place a flow if it is not placed, for a packet sent now."""
        self._used_s[flow.key] = now_s
        if flow.key in self._placed:
            return
        paths = self.paths.between(flow.key.source, flow.key.destination)
        if not paths:
            raise WrongUse(f"the topology has no path from {flow.key.source} to {flow.key.destination}")
        if self._placements[flow.key]:
            # Its rules have expired, so the controller gets a packet from the middle of the flow.
            text = f"{flow.key}|{self._placements[flow.key]}"
            flow = replace(flow, identification=int.from_bytes(blake2b(text.encode(), digest_size=2).digest()))
            self.moves += 1
        self._placements[flow.key] += 1
        strategy = self.policy.get(flow.profile, self.policy[DEFAULT_PROFILE])
        placement = strategy.place(flow, paths, self._view(now_s, patterns))
        until_s = now_s + placement.reserve_s if placement.reserve_s else 0.0
        self._owner[flow.key] = strategy
        self._placed[flow.key] = Placed(flow, placement.path, now_s, until_s)
        if isinf(until_s):
            self._reservations.change_endless(placement.path, 1)
        elif until_s:
            self._reservations.add(placement.path, until_s)
        if uses_labels(strategy) and flow.profile == HPC:
            self._links[flow.key], self._shares[flow.key] = self._sprayed(flow.key.source, paths)
        else:
            self._links[flow.key] = self._numbered(flow.key.source, placement.path)
            self._shares[flow.key] = None
        self._count(flow.key, 1)

    def rearrange(self, strategy: Strategy, now_s: float, patterns: tuple[Pattern, ...]) -> bool:
        """Let a strategy rearrange its flows; return whether any moved."""
        fixed = frozenset(key for key, owner in self._owner.items() if owner is not strategy)
        moves = strategy.rearrange(replace(self._view(now_s, patterns), fixed=fixed))
        for key, path in moves.items():
            placed = self._placed[key]
            self._placed[key] = replace(placed, path=path)
            if isinf(placed.reserved_until_s):
                self._reservations.change_endless(placed.path, -1)
                self._reservations.change_endless(path, 1)
            if self._shares[key] is not None:
                continue  # its frames take all paths, whatever its rule says
            if not placed.is_idle:
                self._count(key, -1)
            self._links[key] = self._numbered(key.source, path)
            if not placed.is_idle:
                self._count(key, 1)
        self.moves += len(moves)
        return bool(moves)

    def measure(self, now_s: float, sent: NDArray[np.float64], flows: Mapping[FlowKey, float]) -> None:
        """Update statistics: bytes that each port and flow sent since the last update."""
        rates = sent / self.statistics_s
        self._load, self._received = PortValues(self.paths, rates), PortValues(self.paths, rates[self._peers])
        for key in [key for key, used_s in self._used_s.items() if now_s - used_s > IDLE_S]:
            self._forget(key)
        for key, placed in self._placed.items():
            rate = flows.get(key, 0.0) / self.statistics_s
            idle = is_idle(rate, now_s - placed.since_s, self.network)
            if (rate, idle) != (placed.rate_byte_s, placed.is_idle):
                self._placed[key] = replace(placed, rate_byte_s=rate, is_idle=idle)
            if idle != placed.is_idle:
                self._count(key, -1 if idle else 1)
            if rate:
                self._used_s[key] = now_s

    def _forget(self, key: FlowKey) -> None:
        if not self._placed[key].is_idle:
            self._count(key, -1)
        if isinf(self._placed[key].reserved_until_s):
            self._reservations.change_endless(self._placed[key].path, -1)
        for known in (self._placed, self._links, self._shares, self._owner, self._used_s):
            del known[key]

    def _count(self, key: FlowKey, change: int) -> None:
        """Change the number of flows on a placed flow's links behind its host; a sprayed one counts in parts."""
        profile = self._placed[key].flow.profile
        if profile not in self._crossing_of:
            self._crossing_of[profile] = PortValues(self.paths, np.zeros(len(self.capacity)))
        shares = self._shares[key]
        for crossing in (self._crossing, self._crossing_of[profile]):
            crossing.array[self._links[key][1:]] += change if shares is None else change * shares[1:]

    def _view(self, now_s: float, patterns: tuple[Pattern, ...]) -> View:
        self._reservations.expire(now_s)
        return View(
            self.network,
            now_s,
            self._placed,
            self._load,
            self._received,
            patterns,
            self._crossing,
            self._crossing_of,
            reservations=self._reservations.paths,
            reserved=self._reservations.switches,
        )

    def _sprayed(self, source: str, paths: Sequence[Path]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The links of all paths, and the part of the traffic on each: frames take all paths in turns."""
        if isinstance(paths, PathSet):
            uplink = self._numbered(source, paths[0])[0]
            rows = np.column_stack((np.full(len(paths), uplink), paths.rows()))
        else:
            rows = np.array([self._numbered(source, path) for path in paths])
        numbers, first, counts = np.unique(rows, return_index=True, return_counts=True)
        order = np.lexsort((first, -counts))  # the host's own link first, as in `links`
        return numbers[order].astype(np.intp), counts[order] / len(paths)

    def _numbered(self, source: str, path: Path) -> NDArray[np.intp]:
        uplink = next(port for port in self.network.ports[source] if self.network.peers[port].node == path[0].node)
        return np.array([self.paths.numbers[port] for port in (uplink, *path)])
