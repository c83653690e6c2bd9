# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated annealing over one core switch for each destination host. Source: Al-Fares et al. 2010 (Hedera), 5.3.2.

A state assigns a path number to each destination host, for all large flows to it (modulo the number of a flow's paths).
Its energy is the load beyond the links' rates, in links. A neighbouring state swaps the paths of two hosts, or changes
the path of one. The temperature falls by 1 in each step; the best state is kept.
"""

import math
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from barewire.sdn.strategies.balance import FlowDemand
from barewire.topology import Network, Port

_STEPS = 1000  # as in the paper
_COLDNESS = 0.5 * _STEPS  # c of exp(-c ΔE / T), the paper's for 16 hosts


def anneal(
    network: Network,
    flows: Sequence[FlowDemand],
    present: Sequence[int],
    hosts: Sequence[str],
    base: Mapping[Port, float],
) -> list[int]:
    """Return a path for each flow; the present ones if nothing better was found.

    `hosts` are the flows' destinations. Randomness is seeded from the arguments, so equal arguments give equal results.
    """
    if not flows:
        return []
    state = _State(network, flows, hosts, base)
    words = [f"{host}|{flow.rate_byte_s:.6g}|{path}" for host, flow, path in zip(hosts, flows, present, strict=True)]
    rng = random.Random(blake2b("\n".join(words).encode(), digest_size=8).digest())
    best_energy, best = state.energy_of(present), list(present)
    energy = state.energy_of(state.paths())
    for temperature in range(_STEPS, 0, -1):
        if energy < best_energy:
            best_energy, best = energy, state.paths()
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
    return best


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
        numbers: dict[Port, int] = {}
        self._rows: list[NDArray[np.intp]] = [
            np.array([[numbers.setdefault(port, len(numbers)) for port in path] for path in flow.paths])
            for flow in flows
        ]
        rate = np.array([network.rate_byte_s(port) for port in numbers])
        self._base = np.array([base.get(port, 0.0) for port in numbers]) / rate
        self._added = [flow.rate_byte_s / rate[rows] for flow, rows in zip(flows, self._rows, strict=True)]
        self.path_count = max(len(flow.paths) for flow in flows)
        self.names = sorted(set(hosts))
        self._flows = {name: [flow for flow, host in enumerate(hosts) if host == name] for name in self.names}
        self._hosts = hosts
        self.chosen = {name: number % self.path_count for number, name in enumerate(self.names)}
        self._share = self._loads(self.paths())

    def paths(self) -> list[int]:
        """The path of each flow in this state."""
        return [self._path(flow) for flow in range(len(self._rows))]

    def change(self, chosen: Mapping[str, int]) -> None:
        """Change the paths of hosts."""
        for host, path in chosen.items():
            self._move(host, -1.0)
            self.chosen[host] = path
            self._move(host, 1.0)

    def energy(self) -> float:
        """The load beyond the links' rates, in links."""
        return _exceeds(self._share)

    def energy_of(self, paths: Sequence[int]) -> float:
        """The energy of arbitrary paths."""
        return _exceeds(self._loads(paths))

    def _path(self, flow: int) -> int:
        return self.chosen[self._hosts[flow]] * len(self._rows[flow]) // self.path_count

    def _loads(self, paths: Sequence[int]) -> NDArray[np.float64]:
        share: NDArray[np.float64] = self._base.copy()
        for flow, path in enumerate(paths):
            share[self._rows[flow][path]] += self._added[flow][path]
        return share

    def _move(self, host: str, sign: float) -> None:
        for flow in self._flows[host]:
            path = self._path(flow)
            self._share[self._rows[flow][path]] += sign * self._added[flow][path]


def _exceeds(share: NDArray[np.float64]) -> float:
    # Rounded, so that demands equal to a link's rate do not exceed it.
    return round(float(np.maximum(share - 1, 0).sum()), 9)
