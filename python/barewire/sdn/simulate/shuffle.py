# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The shuffle of a MapReduce job: every reducer fetches its part from every mapper, some at a time.

Mappers and reducers are spread over the hosts. A reducer requests its parts in its own order, each over a TCP
connection that it opens, so the data flow in the passive side's direction. Parts on the reducer's host do not use the
network.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from barewire.errors import WrongUse
from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import BIG_DATA, Connection, Transfer

SERVER_PORT = 13562  # Hadoop's shuffle handler
_FIRST_PORT, _PORTS = 32768, 28000
# More take gigabytes.
_PARTS_MAX = 10_000_000


@dataclass(frozen=True)
class Shape:
    """The size of a job: `volume_bytes` in total, in parts that are equal up to `skew`, a share of the mean part."""

    mappers: int = 128
    reducers: int = 4
    volume_bytes: int = 4_000_000_000
    copies: int = 5
    skew: float = 0.5

    def __post_init__(self) -> None:
        """Validate the sizes."""
        if min(self.mappers, self.reducers, self.volume_bytes, self.copies) < 1 or not 0 <= self.skew < 1:
            raise WrongUse("a shuffle has mappers, reducers, bytes and copies from 1, and a skew from 0 up to 1")
        if self.mappers * self.reducers > _PARTS_MAX:
            raise WrongUse(f"a shuffle of {self.mappers}x{self.reducers} has more than {_PARTS_MAX} parts")


class Shuffle:
    """One job, as a workload."""

    def __init__(self, hosts: Sequence[str], seed: int, shape: Shape, first_connection: int = 0) -> None:
        """`first_connection` is the number of the first connection, after those of earlier jobs.

        WrongUse if nothing is sent.
        """
        if len(hosts) < 2:
            raise WrongUse("a shuffle needs at least two hosts")
        rng = random.Random(f"shuffle {seed}")
        self.hosts = list(hosts)
        self.shape = shape
        self.finished_s = 0.0
        self.connections = first_connection
        self._numbers = count(first_connection)
        mean = shape.volume_bytes / shape.mappers / shape.reducers
        self._wanted: list[list[tuple[str, int]]] = []
        volumes: Counter[tuple[str, str]] = Counter()
        for reducer in range(shape.reducers):
            here = self._reducer_host(reducer)
            parts = []
            for mapper in range(shape.mappers):
                there = self.hosts[mapper % len(self.hosts)]
                size = max(1, round(mean * (1 + shape.skew * rng.uniform(-1, 1))))
                if there != here:
                    parts.append((there, size))
                    volumes[there, here] += size
            rng.shuffle(parts)
            self._wanted.append(parts)
        if not volumes:
            raise WrongUse(
                f"a shuffle of {shape.mappers}x{shape.reducers} on {len(hosts)} hosts sends nothing, because mappers "
                "and reducers are on one host: give more of them"
            )
        self._under_way = 0
        self._announced: tuple[Pattern, ...] = (dict(volumes),)

    @property
    def finished(self) -> bool:
        """Whether every reducer has every part."""
        return self._under_way == 0 and not any(self._wanted)

    @property
    def has_sent(self) -> bool:
        """The same: all of a shuffle is one coflow."""
        return self.finished

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The volumes of the whole job."""
        return self._announced

    def wanted(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return each reducer's host and its remaining parts in order: (mapper's host, bytes)."""
        return [(self._reducer_host(number), parts[::-1]) for number, parts in enumerate(self._wanted)]

    def begin(self) -> list[Transfer]:
        """Let every reducer request its number of parallel copies."""
        return [
            transfer
            for _ in range(min(self.shape.copies, self.shape.mappers))
            for reducer in range(self.shape.reducers)
            for transfer in self._fetch(reducer)
        ]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Let the reducer request its next part."""
        self._under_way -= 1
        self.finished_s = now_s
        reducer: int = transfer.tag
        return self._fetch(reducer)

    def _fetch(self, reducer: int) -> list[Transfer]:
        if not self._wanted[reducer]:
            return []
        mapper_host, size = self._wanted[reducer].pop()
        self._under_way += 1
        self.connections = next(self._numbers) + 1
        number = self.connections
        # Mixed like the kernel's: neither ports nor identifications are sequential.
        mixed = random.Random(number).getrandbits(16)
        connection = Connection(
            self._reducer_host(reducer),
            mapper_host,
            BIG_DATA,
            active_port=_FIRST_PORT + number % _PORTS,
            passive_port=SERVER_PORT,
            identification=mixed,
        )
        return [Transfer(connection, mapper_host, size, reducer)]

    def _reducer_host(self, reducer: int) -> str:
        if self.shape.reducers < len(self.hosts):
            return self.hosts[reducer * len(self.hosts) // self.shape.reducers]
        return self.hosts[reducer % len(self.hosts)]
