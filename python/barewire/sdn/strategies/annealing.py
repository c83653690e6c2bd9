# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated annealing over one core switch for each destination host. Source: Al-Fares et al. 2010 (Hedera), 5.3.2.

A state assigns a path number to each destination host, for all large flows to it (modulo the number of a flow's paths).
Its energy is the load beyond the links' rates, in links. A neighbouring state swaps the paths of two hosts, or changes
the path of one. The temperature falls by 1 in each step; the best state is kept.
"""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from barewire.sdn.strategies.balance import FlowDemand, Rows
from barewire.topology import Network, Path, Port

_STEPS = 1000  # as in the paper
_COLDNESS = 0.5 * _STEPS  # c of exp(-c ΔE / T), the paper's for 16 hosts


def anneal(
    network: Network,
    flows: Sequence[FlowDemand],
    present: Sequence[Path],
    hosts: Sequence[str],
    base: Mapping[Port, float],
) -> list[Path]:
    """Return a path for each flow; the present ones if nothing better was found.

    `hosts` are the flows' destinations. Randomness is seeded from the arguments, so equal arguments give equal results.
    """
    if not flows:
        return []
    state = _State(network, flows, hosts, base)
    numbers = (flow.paths.index(path) for flow, path in zip(flows, present, strict=True))
    words = [f"{host}|{flow.rate_byte_s:.6g}|{path}" for host, flow, path in zip(hosts, flows, numbers, strict=True)]
    rng = random.Random(blake2b("\n".join(words).encode(), digest_size=8).digest())
    best_energy, best = state.energy_of(present), None
    energy = state.energy()
    for temperature in range(_STEPS, 0, -1):
        if energy < best_energy:
            best_energy, best = energy, dict(state.chosen)
        if best_energy == 0:
            break
        change = _neighbour(state, rng)
        before = {host: state.chosen[host] for host in change}
        state.change(change)
        after = state.energy()
        if after <= energy or rng.random() < math.exp(-_COLDNESS * (after - energy) / temperature):
            energy = after
        else:
            state.change(before)
    return list(present) if best is None else state.paths(best)


def _neighbour(state: "_State", rng: random.Random) -> dict[str, int]:
    first, second = rng.choice(state.names), rng.choice(state.names)
    if first != second and rng.random() < 0.5:
        return {first: state.chosen[second], second: state.chosen[first]}
    return {first: rng.randrange(state.path_count)}


class _State:
    """A path for each destination, and the resulting loads as shares of the links' rates."""

    def __init__(
        self, network: Network, flows: Sequence[FlowDemand], hosts: Sequence[str], base: Mapping[Port, float]
    ) -> None:
        self._numbered = Rows(network)
        self._rate = self._numbered.rate_byte_s
        self._base = self._numbered.of_ports(base) / self._rate
        self._flows = flows
        self._counts = [len(flow.paths) for flow in flows]
        self.path_count = max(self._counts)
        self.names = sorted(set(hosts))
        self._to: defaultdict[str, list[int]] = defaultdict(list)
        for flow, host in enumerate(hosts):
            self._to[host].append(flow)
        self.chosen = {name: number % self.path_count for number, name in enumerate(self.names)}
        self._rows: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)] * len(flows)
        self._share: NDArray[np.float64] = self._base.copy()
        for name, path in self.chosen.items():
            self._enter(name, path)

    def paths(self, chosen: Mapping[str, int]) -> list[Path]:
        """The path of each flow in a state."""
        found: list[Path] = [()] * len(self._flows)
        for host, path in chosen.items():
            for flow in self._to[host]:
                found[flow] = self._numbered.path(self._row(flow, path))
        return found

    def change(self, chosen: Mapping[str, int]) -> None:
        """Change the paths of hosts."""
        for host, path in chosen.items():
            for flow in self._to[host]:
                row = self._rows[flow]
                self._share[row] -= self._flows[flow].rate_byte_s / self._rate[row]
            self.chosen[host] = path
            self._enter(host, path)

    def energy(self) -> float:
        """The load beyond the links' rates, in links."""
        return _exceeds(self._share)

    def energy_of(self, paths: Sequence[Path]) -> float:
        """The energy of arbitrary paths."""
        share = self._base.copy()
        for flow, path in zip(self._flows, paths, strict=True):
            row = self._numbered.of_path(path)
            share[row] += flow.rate_byte_s / self._rate[row]
        return _exceeds(share)

    def _row(self, flow: int, path: int) -> NDArray[np.int32]:
        row: NDArray[np.int32] = self._numbered.of(self._flows[flow].paths)[
            path * self._counts[flow] // self.path_count
        ]
        return row

    def _enter(self, host: str, path: int) -> None:
        for flow in self._to[host]:
            row = self._rows[flow] = self._row(flow, path)
            self._share[row] += self._flows[flow].rate_byte_s / self._rate[row]


def _exceeds(share: NDArray[np.float64]) -> float:
    # Rounded, so that demands equal to a link's rate do not exceed it.
    return round(float(np.maximum(share - 1, 0).sum()), 9)
