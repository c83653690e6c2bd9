# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Turns of jobs whose traffic together exceeds links: the shortest remaining one goes first.

What a job sends at once is a coflow (Chowdhury et al. 2014, Varys; Agarwal et al. 2018, Sincronia): a whole shuffle, or
the exchange of one iteration of a training job. If two jobs that compute and communicate in turns collide, one waits
once, and from then on each communicates while the other computes: the staggered phases of CASSINI (Rajasekaran et al.
2024), without computing time shifts ahead, and again after each drift.

No clock, no I/O.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from barewire.sdn.flow import Pattern
from barewire.sdn.strategies.memo import Remembering, paths_of
from barewire.sdn.strategies.planned import PAIRS_MAX, plan
from barewire.topology import Network, Port

# Jobs send at once while each keeps this share of what it has alone.
_KEPT = 0.9
_EQUAL = 1e-9
# Jobs whose coflows are remembered: as many as can be announced.
JOBS_MAX = 1000


@dataclass(frozen=True)
class Coflow:
    """What a job sends at once: the time that it takes alone, and the part of each link that it fills meanwhile."""

    duration_s: float
    shares: Mapping[Port, float]


@dataclass
class _Turn:
    coflow: Coflow
    number: int
    since_s: float
    goes: bool = False
    sent_s: float = 0.0
    waited_s: float = 0.0

    @property
    def remaining_s(self) -> float:
        return max(self.coflow.duration_s - self.sent_s, 0.0)

    def advance(self, now_s: float) -> None:
        passed_s = now_s - self.since_s
        self.since_s = now_s
        if self.goes:
            self.sent_s += passed_s
        else:
            self.waited_s += passed_s


class Turns:
    """The jobs that send or want to send. Times are those of a monotonic clock, in seconds.

    In the order of their remaining times, each may send if then none of its links has more than it carries. None waits
    longer in all than it takes alone; after that it sends beside the others.
    """

    def __init__(self) -> None:
        """Begin without jobs."""
        self._turns: dict[str, _Turn] = {}
        self._numbers = count()

    @property
    def any(self) -> bool:
        """Whether any job sends or wants to."""
        return bool(self._turns)

    def want(self, job: str, coflow: Coflow, now_s: float) -> bool:
        """A job wants to send its coflow, or does so already; return whether this is new."""
        if job in self._turns:
            self._turns[job].coflow = coflow
            return False
        self._turns[job] = _Turn(coflow, next(self._numbers), now_s)
        return True

    def end(self, job: str) -> None:
        """A job has sent its coflow, or has ended; no effect if it did not want to send."""
        self._turns.pop(job, None)

    def retain(self, jobs: Collection[str]) -> None:
        """Forget all other jobs."""
        for job in self._turns.keys() - jobs:
            del self._turns[job]

    def going(self, now_s: float) -> frozenset[str]:
        """Return the jobs that may send now."""
        for turn in self._turns.values():
            turn.advance(now_s)
        load: defaultdict[Port, float] = defaultdict(float)
        most = (1 + _EQUAL) / _KEPT
        for turn in sorted(self._turns.values(), key=lambda turn: (round(turn.remaining_s, 9), turn.number)):
            shares = turn.coflow.shares
            fits = all(load[port] + share <= most for port, share in shares.items() if load[port])
            turn.goes = fits or turn.waited_s >= turn.coflow.duration_s * (1 - _EQUAL)
            if turn.goes:
                for port, share in shares.items():
                    load[port] += share
        return frozenset(job for job, turn in self._turns.items() if turn.goes)


@partial(Remembering, JOBS_MAX)
def coflow_of(network: Network, pattern: Pattern, together: Pattern) -> Coflow | None:
    """Return a pattern's coflow; None if it sends nothing, or is too large.

    `together` is the sum of all jobs' patterns: its plan has the flows' paths. Flows without a planned path count as
    spread over all their shortest paths.
    """
    if len(pattern) > PAIRS_MAX:
        return None
    planned, routes = plan(network, together), paths_of(network)
    volume_bytes: defaultdict[Port, float] = defaultdict(float)
    for (source, destination), volume in pattern.items():
        first = network.attachment(source)
        if first is None or network.attachment(destination) is None:
            continue
        path = planned.get((source, destination))
        paths = [path] if path is not None else routes.between(source, destination)
        volume_bytes[network.peers[first]] += volume if paths else 0
        for path in paths:
            for port in path:
                volume_bytes[port] += volume / len(paths)
    times_s = {port: volume / network.rate_byte_s(port) for port, volume in volume_bytes.items()}
    duration_s = max(times_s.values(), default=0.0)
    if not duration_s:
        return None
    return Coflow(duration_s, {port: time_s / duration_s for port, time_s in times_s.items()})


def takes_turns(strategy: object) -> bool:
    """Return whether jobs of this strategy's profile take turns where links do not suffice."""
    return getattr(strategy, "turns", "no") == "yes"
