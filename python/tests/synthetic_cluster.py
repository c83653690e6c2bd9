# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Clusters as they might have been measured, with noise from a seed, and with faults."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from barewire.cluster import HostState, Measured, Path
from barewire.cluster.measured import Together
from barewire.cluster.tournament import Pair, permutations

RATE_BIT_S = 1e9
FRAMES = 2000
MTU = 9000


def names(count: int) -> list[str]:
    return [f"h{number}" for number in range(1, count + 1)]


def healthy(count: int = 8, seed: int = 0, noise: float = 0.15) -> Measured:
    """A cluster without a fault on a noisy machine: rates and times vary, some frames are lost here and there."""
    source = random.Random(seed)

    def path() -> Path:
        rate = RATE_BIT_S * (1 - min(0.4, abs(source.gauss(0, noise))))
        stray = int(source.random() < 0.02)
        return Path(rate, FRAMES, stray, 0, FRAMES, stray, rate, MTU, MTU, 20_000 * (1 + abs(source.gauss(0, noise))))

    hosts = names(count)
    states = {
        name: HostState(
            "eth0",
            MTU,
            speed_mbit_s=1000,
            duplex="full",
            core_share=1 - min(0.3, abs(source.gauss(0, noise))),
            work_ns=12_000 * (1 + min(0.25, abs(source.gauss(0, 0.05)))),
        )
        for name in hosts
    }
    paths = {(a, b): path() for a in hosts for b in hosts if a != b}
    rounds = permutations(hosts, 6)
    together = {ends: Together(0.95 * RATE_BIT_S, FRAMES, 0) for paths_at_once in rounds for ends in paths_at_once}
    return Measured(states, paths, together, alone=frozenset(paths))


def changed(measured: Measured, ends: Iterable[Pair], change: Callable[[Path], Path]) -> Measured:
    """The same with some paths changed."""
    return replace(measured, paths={**measured.paths, **{pair: change(measured.paths[pair]) for pair in ends}})


def with_host(measured: Measured, name: str, **state: Any) -> Measured:
    """The same with some of a host's state changed."""
    return replace(measured, hosts={**measured.hosts, name: replace(measured.hosts[name], **state)})


def sent_by(measured: Measured, host: str) -> list[Pair]:
    return [ends for ends in measured.paths if ends[0] == host]


def received_by(measured: Measured, host: str) -> list[Pair]:
    return [ends for ends in measured.paths if ends[1] == host]


def losing(share: float, seed: int = 0) -> Callable[[Path], Path]:
    """A change of paths that lose a share of their frames, at random."""
    source = random.Random(seed)

    def change(path: Path) -> Path:
        lost, both = (sum(source.random() < share for _ in range(FRAMES)) for _ in range(2))
        return replace(path, lost=lost, both_lost=both)

    return change
