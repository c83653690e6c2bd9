# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every host sends to one other host and receives from one, without end."""

import random
from collections.abc import Sequence

from barewire.errors import WrongUse
from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import HPC, Connection, Transfer

_ENDLESS_BYTES = 1e18


class Permutation:
    """A random permutation as a workload that never finishes; hosts mapped to themselves are left out."""

    def __init__(self, hosts: Sequence[str], seed: int) -> None:
        """Draw the permutation. WrongUse for fewer than two hosts."""
        if len(hosts) < 2:
            raise WrongUse("a permutation needs at least two hosts")
        rng = random.Random(f"permutation {seed}")
        self.pairs: list[tuple[str, str]] = []
        while not self.pairs:
            to = rng.sample(list(hosts), len(hosts))
            self.pairs = [(source, target) for source, target in zip(hosts, to, strict=True) if source != target]
        self._numbers = [(rng.randrange(32768, 60768), rng.getrandbits(16)) for _ in self.pairs]
        self._announced: tuple[Pattern, ...] = (dict.fromkeys(self.pairs, 1),)

    @property
    def finished(self) -> bool:
        """Never."""
        return False

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """All pairs with equal volumes."""
        return self._announced

    def begin(self) -> list[Transfer]:
        """Start all transfers."""
        return [
            Transfer(Connection(source, target, HPC, "tcp", port, 5001, identification), source, _ENDLESS_BYTES, source)
            for (source, target), (port, identification) in zip(self.pairs, self._numbers, strict=True)
        ]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Never called: transfers do not finish."""
        return []
