# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training jobs: iterations in which all ranks compute, then exchange messages in a collective's steps.

    ring      all-reduce: n − 1 steps of reduce-scatter and n − 1 of all-gather, each rank to its right neighbour
    tree      all-reduce: reduction and broadcast in two binary trees at once, each with half of the data; who is inner
              in one is a leaf in the other, so all links are used alike (Sanders, Speck, Träff 2009; as in NCCL)
    moe       a mixture-of-experts layer: tokens go to their experts (all-to-all), the results return; experts are not
              equally popular
    pipeline  stages of a model: micro-batches go forward from neighbour to neighbour, gradients backward

A rank begins a step when all its messages of the step before have arrived, a message when both ends have reached its
step. Ranks wait for each other only between iterations.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from barewire.errors import WrongUse, unknown
from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import HPC, Connection, Transfer

# Ranks listen on these ports, each job from another thousand.
FIRST_PORT, PORTS_OF_A_JOB = 21000, 1000
# More than a thousand times as long as the exchange: its iterations would only compute.
COMPUTE_SHARE_MAX = 0.999


class Message(NamedTuple):
    """Bytes from one rank to another."""

    source: int
    destination: int
    size_bytes: int


# The messages of one step, in any order.
Step = tuple[Message, ...]


@dataclass(frozen=True)
class TrainingPlan:
    """Parameters of training jobs.

    `message_bytes` is the mean size of a message in a ring's or pipeline's step and of an expert's tokens from one
    rank; a tree reduces as much as a ring of the same ranks. `compute_share` is the share of computing in an iteration
    that no other traffic disturbs. `skew` is the deviation of experts' popularity, a share of the mean.
    """

    message_bytes: int = 2_000_000
    iterations: int = 30
    compute_share: float = 0.25
    skew: float = 0.5

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if min(self.message_bytes, self.iterations) < 1:
            raise WrongUse("a training job has messages of at least 1 byte, and at least 1 iteration")
        if not (0 <= self.compute_share <= COMPUTE_SHARE_MAX and 0 <= self.skew < 1):
            raise WrongUse(
                f"a training job's compute share and skew are from 0 up to 1, the share at most {COMPUTE_SHARE_MAX}"
            )


def steps_of(collective: str, ranks: int, plan: TrainingPlan, seed: int) -> list[Step]:
    """Return the steps of one iteration. WrongUse for an unknown collective, or fewer than two ranks."""
    if collective not in COLLECTIVES:
        raise unknown("collective", collective, COLLECTIVES)
    if ranks < 2:
        raise WrongUse("a training job needs at least two hosts")
    return COLLECTIVES[collective](ranks, plan, seed)


class Training:
    """One job, as a workload: rank i on host i."""

    def __init__(
        self,
        hosts: Sequence[str],
        seed: int,
        collective: str,
        plan: TrainingPlan,
        compute_s: float,
        number: int = 0,
    ) -> None:
        """`compute_s` begins each iteration; jobs at the same time have different numbers. Errors as of `steps_of`."""
        if len(set(hosts)) < len(hosts):
            raise WrongUse("a training job needs each host once")
        self.hosts = list(hosts)
        self.steps = steps_of(collective, len(hosts), plan, seed)
        self.plan = plan
        self.compute_s = compute_s
        self.finished_s = 0.0
        self._first_port = FIRST_PORT + number * PORTS_OF_A_JOB
        self._seed = seed
        self._connections: dict[tuple[int, int], Connection] = {}
        # By rank: the numbers of its steps in order, and of its messages in each.
        self._own: list[list[int]] = [[] for _ in hosts]
        self._messages: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number_of_step, step in enumerate(self.steps):
            for number_of_message, message in enumerate(step):
                for rank in message[:2]:
                    if (number_of_step, rank) not in self._messages:
                        self._own[rank].append(number_of_step)
                    self._messages[number_of_step, rank].append(number_of_message)
        self._announced: tuple[Pattern, ...] = (pattern_of(self.steps, self.hosts),)
        self._iterations = 0
        self._start_iteration()

    @property
    def finished(self) -> bool:
        """Whether all iterations are complete."""
        return self._iterations == self.plan.iterations

    @property
    def has_sent(self) -> bool:
        """Whether the messages of an iteration have arrived, and those of the next have not begun."""
        return self.finished or not self._is_under_way

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The volumes of an iteration."""
        return self._announced

    def begin(self) -> list[Transfer]:
        """Compute, then let every rank enter its first step."""
        return [transfer for rank in range(len(self.hosts)) for transfer in self._enter(rank, self.compute_s)]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Advance the ranks that waited only for this transfer; after the last one begin the next iteration."""
        self._is_under_way = True
        begins: list[Transfer] = []
        step, message = transfer.tag
        for rank in self.steps[step][message][:2]:
            self._open[rank] -= 1
            if self._open[rank] == 0:
                self._position[rank] += 1
                begins += self._enter(rank, 0.0)
        if all(position == len(own) for position, own in zip(self._position, self._own, strict=True)):
            self._iterations += 1
            self._start_iteration()
            if self.finished:
                self.finished_s = now_s
                return []
            return self.begin()
        return begins

    def _start_iteration(self) -> None:
        self._position = [0] * len(self.hosts)
        self._open = [0] * len(self.hosts)
        self._here: Counter[tuple[int, int]] = Counter()
        self._is_under_way = False

    def _enter(self, rank: int, delay_s: float) -> list[Transfer]:
        """Let a rank reach its next step; return the messages whose other end is there already."""
        if self._position[rank] == len(self._own[rank]):
            return []
        step = self._own[rank][self._position[rank]]
        begins: list[Transfer] = []
        for number in self._messages[step, rank]:
            self._open[rank] += 1
            self._here[step, number] += 1
            if self._here[step, number] == 2:
                message = self.steps[step][number]
                connection = self._connection(message.source, message.destination)
                source = self.hosts[message.source]
                begins.append(Transfer(connection, source, message.size_bytes, (step, number), delay_s))
        return begins

    def _connection(self, source: int, destination: int) -> Connection:
        """One connection for each pair of ranks, which the lower rank opens."""
        pair = (min(source, destination), max(source, destination))
        if pair not in self._connections:
            drawn = blake2b(f"{self._first_port}|{self._seed}|{pair}".encode(), digest_size=4).digest()
            self._connections[pair] = Connection(
                self.hosts[pair[0]],
                self.hosts[pair[1]],
                HPC,
                active_port=32768 + int.from_bytes(drawn[:2]) % 28000,
                passive_port=self._first_port + pair[1],
                identification=int.from_bytes(drawn[2:]),
            )
        return self._connections[pair]


def pattern_of(steps: Sequence[Step], hosts: Sequence[str]) -> Pattern:
    """Return the volumes between hosts of all these steps together."""
    volumes: Counter[tuple[str, str]] = Counter()
    for step in steps:
        for source, destination, size_bytes in step:
            volumes[hosts[source], hosts[destination]] += size_bytes
    return dict(volumes)


def _ring(ranks: int, plan: TrainingPlan, seed: int) -> list[Step]:
    step = tuple(Message(rank, (rank + 1) % ranks, plan.message_bytes) for rank in range(ranks))
    return [step] * (2 * (ranks - 1))


def _tree(ranks: int, plan: TrainingPlan, seed: int) -> list[Step]:
    half_bytes = max(1, plan.message_bytes * ranks // 2)
    first = _tree_edges(ranks)

    def renamed(rank: int) -> int:
        """Mirrored for an even number of ranks, shifted for an odd one: then leaves become inner ones."""
        return ranks - 1 - rank if ranks % 2 == 0 else (rank + 1) % ranks

    edges = [*first, *((renamed(child), renamed(parent)) for child, parent in first)]
    return [
        tuple(Message(child, parent, half_bytes) for child, parent in edges),
        tuple(Message(parent, child, half_bytes) for child, parent in edges),
    ]


def _tree_edges(ranks: int) -> list[tuple[int, int]]:
    """Each child and its parent in a binary tree below rank 0 in which all odd ranks are leaves."""
    edges = []
    for rank in range(1, ranks):
        lowest = rank & -rank
        parent = (rank ^ lowest) | lowest << 1
        edges.append((rank, parent if parent < ranks else rank ^ lowest))
    return edges


def _experts(ranks: int, plan: TrainingPlan, seed: int) -> list[Step]:
    rng = random.Random(f"experts {seed}")
    popularity = [1 + plan.skew * rng.uniform(-1, 1) for _ in range(ranks)]
    unit = plan.message_bytes * ranks / sum(popularity)
    dispatch = tuple(
        Message(source, expert, max(1, round(unit * popularity[expert])))
        for source in range(ranks)
        for expert in range(ranks)
        if source != expert
    )
    return [dispatch, tuple(Message(expert, source, size) for source, expert, size in dispatch)]


def _pipeline(ranks: int, plan: TrainingPlan, seed: int) -> list[Step]:
    """As many micro-batches as stages; in step w, micro-batch w − i goes from stage i to the next."""
    forward = [
        tuple(Message(rank, rank + 1, plan.message_bytes) for rank in range(ranks - 1) if 0 <= step - rank < ranks)
        for step in range(2 * ranks - 2)
    ]
    backward = [
        tuple(Message(ranks - 1 - source, ranks - 1 - destination, size) for source, destination, size in step)
        for step in forward
    ]
    return forward + backward


COLLECTIVES: dict[str, Callable[[int, TrainingPlan, int], list[Step]]] = {
    "ring": _ring,
    "tree": _tree,
    "moe": _experts,
    "pipeline": _pipeline,
}
