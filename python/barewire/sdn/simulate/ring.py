# SPDX-License-Identifier: Apache-2.0 OR MIT
"""b_eff's rings as in `mpi/beff`: equal seeds give equal rings in both.

A step is the communication between two waits: with `sendrecv` each rank sends to the right and, in a separate step, to
the left; with `nonblocking` both at once. A message starts when both ends have reached its step and the sender's
overhead has passed; a rank leaves a step when all its messages have arrived. There is no other synchronisation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from barewire.errors import WrongUse
from barewire.models.beff import METHODS, bandwidth_byte_s, mean_latency_ns, ring_latency_ns
from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import HPC, Connection, Transfer

_MASK = (1 << 64) - 1
_FIRST_PORT = 1024


@dataclass(frozen=True)
class RingPlan:
    """b_eff's parameters as in HPC Challenge, but with 2 exchanges, because further ones are equal.

    `overhead_s` is the sender's time for a message besides the transfer. `transport` is tcp (one permanent connection
    for each pair of ranks) or llc.
    """

    message_bytes: int = 2_000_000
    rings: int = 10
    measurements: int = 3
    exchanges: int = 2
    overhead_s: float = 0.01
    transport: str = "tcp"


@dataclass(frozen=True)
class _Step:
    """Messages as (from, to); `starts` and `stops` mark the timed region of a ring and method."""

    ring: int
    method: int
    measurement: int
    messages: tuple[tuple[int, int], ...]
    starts: bool
    stops: bool


class Ring:
    """One run over the natural and all random rings, as a workload."""

    def __init__(self, hosts: Sequence[str], seed: int, plan: RingPlan) -> None:
        """Rank i runs on host i. WrongUse for fewer than two hosts, or duplicates."""
        if len(hosts) < 2 or len(set(hosts)) < len(hosts):
            raise WrongUse("a ring needs at least two hosts, each once")
        self.hosts = list(hosts)
        self.plan = plan
        self._seed = seed
        self.orders = [draw_ring(seed, ring, len(hosts)) for ring in range(plan.rings + 1)]
        self._patterns = [self._pattern(order) for order in self.orders]
        self._announced = [
            (pattern, self._patterns[(ring + 1) % len(self._patterns)]) for ring, pattern in enumerate(self._patterns)
        ]
        self._steps = self._all_steps()
        self._step_of = [0] * len(hosts)
        self._furthest = 0
        self._here: Counter[tuple[int, int]] = Counter()
        self._open: Counter[tuple[int, int]] = Counter()
        self._connections: dict[tuple[int, int], Connection] = {}
        self._started_s = np.zeros(len(hosts))
        self._exchange_ns = np.zeros((len(METHODS), plan.rings + 1, plan.measurements, len(hosts)))

    @property
    def finished(self) -> bool:
        """Whether every rank has completed all steps."""
        return min(self._step_of) == len(self._steps)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The ring of the most advanced rank, and the next."""
        return self._announced[self._steps[min(self._furthest, len(self._steps) - 1)].ring]

    def begin(self) -> list[Transfer]:
        """Let every rank enter the first step."""
        return [transfer for rank in range(len(self.hosts)) for transfer in self._enter(rank)]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Advance the ranks that waited only for this transfer."""
        step, message = transfer.tag
        begins: list[Transfer] = []
        for rank in self._steps[step].messages[message]:
            self._open[step, rank] -= 1
            if self._open[step, rank] == 0:
                self._leave(rank, now_s)
                begins += self._enter(rank)
        return begins

    def bandwidth_byte_s(self, rings: str = "random") -> float:
        """b_eff's value of the random rings, or of the natural ring, in bytes a second per rank."""
        which = range(1, self.plan.rings + 1) if rings == "random" else range(1)
        latencies = [ring_latency_ns(*self._exchange_ns[:, ring]) for ring in which]
        return bandwidth_byte_s(self.plan.message_bytes, mean_latency_ns(latencies))

    def ring_patterns(self) -> list[Pattern]:
        """All rings as patterns, the natural one first."""
        return self._patterns

    def _enter(self, rank: int) -> list[Transfer]:
        number = self._step_of[rank]
        self._furthest = max(self._furthest, number)
        if number == len(self._steps):
            return []
        step = self._steps[number]
        sends = Counter(source for source, _ in step.messages)
        begins: list[Transfer] = []
        for message, ends in enumerate(step.messages):
            if rank not in ends:
                continue
            self._open[number, rank] += 1
            self._here[number, message] += 1
            if self._here[number, message] == 2:
                source, destination = ends
                delay_s = self.plan.overhead_s * sends[source]
                connection = self._connection(source, destination)
                size = self.plan.message_bytes
                begins.append(Transfer(connection, self.hosts[source], size, (number, message), delay_s))
        return begins

    def _leave(self, rank: int, now_s: float) -> None:
        step = self._steps[self._step_of[rank]]
        if step.stops:
            spent_ns = (now_s - self._started_s[rank]) * 1e9 / self.plan.exchanges
            self._exchange_ns[step.method, step.ring, step.measurement, rank] = spent_ns
        self._step_of[rank] += 1
        if self._step_of[rank] < len(self._steps) and self._steps[self._step_of[rank]].starts:
            self._started_s[rank] = now_s

    def _connection(self, source: int, destination: int) -> Connection:
        pair = (min(source, destination), max(source, destination))
        if pair not in self._connections:
            drawn = blake2b(f"{self._seed}|{pair}".encode(), digest_size=8).digest()
            active, passive = pair if drawn[0] % 2 else pair[::-1]
            ports = (32768 + int.from_bytes(drawn[1:3]) % 28000, _FIRST_PORT + passive)
            self._connections[pair] = Connection(
                self.hosts[active],
                self.hosts[passive],
                HPC,
                self.plan.transport,
                *(ports if self.plan.transport == "tcp" else (0, 0)),
                identification=int.from_bytes(drawn[3:5]) if self.plan.transport == "tcp" else 0,
            )
        return self._connections[pair]

    def _pattern(self, order: Sequence[int]) -> Pattern:
        volumes: Counter[tuple[str, str]] = Counter()
        for source, destination in (*_messages(order, 1), *_messages(order, -1)):
            volumes[self.hosts[source], self.hosts[destination]] += self.plan.message_bytes
        return dict(volumes)

    def _all_steps(self) -> list[_Step]:
        steps: list[_Step] = []
        for measurement in range(self.plan.measurements):
            for ring, order in enumerate(self.orders):
                rightward, leftward = _messages(order, 1), _messages(order, -1)
                for method, name in enumerate(METHODS):
                    parts = [rightward, leftward] if name == "sendrecv" else [rightward + leftward]
                    # One exchange is not timed.
                    total = (self.plan.exchanges + 1) * len(parts)
                    steps += [
                        _Step(
                            ring,
                            method,
                            measurement,
                            parts[number % len(parts)],
                            starts=number == len(parts),
                            stops=number == total - 1,
                        )
                        for number in range(total)
                    ]
        return steps


def draw_ring(seed: int, ring: int, ranks: int) -> list[int]:
    """Return the ranks in a ring's order, as `mpi/beff` draws it (SplitMix64); ring 0 is the natural one."""
    _, drawn = _draw(seed & _MASK)
    state = drawn ^ ring
    order = [0] * ranks
    for place in range(ranks):
        swapped = place
        if ring:
            state, drawn = _draw(state)
            swapped = drawn % (place + 1)
        order[place] = order[swapped]
        order[swapped] = place
    return order


def _draw(state: int) -> tuple[int, int]:
    """SplitMix64: the next state, and the number drawn."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return state, z ^ z >> 31


def _messages(order: Sequence[int], step: int) -> tuple[tuple[int, int], ...]:
    return tuple((rank, order[(place + step) % len(order)]) for place, rank in enumerate(order))
