# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the time of a job goes: what its processes' profiles say together."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.results.profile import CallRow, Inside, RankProfile, Wait, added

LONGEST_KEPT = 16


@dataclass(frozen=True)
class Parts:
    """A rank's time between MPI_Init's end and MPI_Finalize, in seconds of all its threads that call MPI.

    Waiting is what a call that waits for others takes beyond the shortest one of the same kind and size in any rank.
    """

    outside_s: float
    waiting_s: float
    asking_s: float
    moving_s: float

    @property
    def mpi_s(self) -> float:
        """Time in MPI."""
        return self.waiting_s + self.asking_s + self.moving_s


@dataclass(frozen=True)
class RankParts:
    """One rank; `peers_late_s` is how much longer the busiest rank worked outside MPI than this one."""

    rank: int
    host: str
    spawned: bool
    state: str
    main_s: float
    init_s: float | None
    finalize_s: float | None
    parts: Parts
    peers_late_s: float
    inside: tuple[Inside, ...]
    # After the begin of MPI_Init; None without any call.
    last_call_s: float | None


@dataclass(frozen=True)
class JobCall:
    """A row of calls over all ranks; times are sums over the ranks."""

    row: CallRow
    waiting_s: float


@dataclass(frozen=True)
class JobProfile:
    """One launch."""

    ranks: tuple[RankParts, ...]
    calls: tuple[JobCall, ...]
    longest: tuple[Wait, ...]
    bins: tuple[tuple[float, tuple[float, ...]], ...]
    library: str
    expected_ranks: int
    threads_unrecorded: int
    recorded_calls: int
    cost_per_call_s: float

    @property
    def main_s(self) -> float:
        """From the end of MPI_Init to MPI_Finalize: the longest of the ranks."""
        return max((one.main_s for one in self.ranks), default=0.0)

    @property
    def mean(self) -> Parts:
        """The mean rank."""
        count = max(1, len(self.ranks))
        names = ("outside_s", "waiting_s", "asking_s", "moving_s")
        return Parts(*(sum(getattr(one.parts, name) for one in self.ranks) / count for name in names))

    @property
    def mpi_share(self) -> float:
        """The mean rank's share of time in MPI, 0 to 1."""
        mean = self.mean
        whole = mean.outside_s + mean.mpi_s
        return mean.mpi_s / whole if whole > 0 else 0.0

    @property
    def late_s(self) -> float:
        """How long the mean rank must wait because others work longer outside MPI."""
        return sum(one.peers_late_s for one in self.ranks) / max(1, len(self.ranks))

    @property
    def cost_s(self) -> float:
        """What the profiler took from the mean rank."""
        return self.recorded_calls * self.cost_per_call_s / max(1, len(self.ranks))

    @property
    def unfinished(self) -> tuple[RankParts, ...]:
        """Ranks that did not come to the end of MPI_Finalize."""
        return tuple(one for one in self.ranks if one.state != "finalised")

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "main_s": self.main_s,
            "mpi_share": self.mpi_share,
            "mean": asdict(self.mean) | {"mpi_s": self.mean.mpi_s},
            "peers_late_s": self.late_s,
            "cost_s": self.cost_s,
            "cost_per_call_s": self.cost_per_call_s,
            "recorded_calls": self.recorded_calls,
            "library": self.library,
            "expected_ranks": self.expected_ranks,
            "ranks": [asdict(one) for one in self.ranks],
            "calls": [asdict(one.row) | {"waiting_s": one.waiting_s} for one in self.calls],
            "longest": [asdict(one) for one in self.longest],
            "threads_unrecorded": self.threads_unrecorded,
        }


def summed_up(profiles: Sequence[RankProfile], expected_ranks: int) -> JobProfile:
    """All processes of one job; `expected_ranks` is how many were asked for."""
    shortest = _shortest(profiles)
    parts = [_parts_of(one, shortest) for one in profiles]
    # A spawned world works for itself: it is late for its own.
    busiest = {
        world: max((p.outside_s for p, one in zip(parts, profiles, strict=True) if one.spawned == world), default=0.0)
        for world in (False, True)
    }
    ranks = [_rank(one, own, busiest[one.spawned] - own.outside_s) for one, own in zip(profiles, parts, strict=True)]
    rows: dict[tuple[str, int | None], JobCall] = {}
    for one in profiles:
        for row in one.calls:
            key, waiting = (row.call, row.bytes_from), _waiting(row, shortest)
            known = rows.get(key)
            rows[key] = (
                JobCall(row, waiting) if known is None else JobCall(added(known.row, row), known.waiting_s + waiting)
            )
    longest = sorted((wait for one in profiles for wait in one.longest), key=lambda wait: -wait.time_s)
    return JobProfile(
        ranks=tuple(ranks),
        calls=tuple(sorted(rows.values(), key=lambda one: -one.row.time_s)),
        longest=tuple(longest[:LONGEST_KEPT]),
        bins=tuple((one.bin_s, one.bins) for one in profiles),
        library=profiles[0].library if profiles else "",
        expected_ranks=expected_ranks,
        threads_unrecorded=sum(one.threads_unrecorded for one in profiles),
        recorded_calls=sum(one.count for one in profiles),
        cost_per_call_s=max((one.cost_per_call_s for one in profiles), default=0.0),
    )


def _shortest(profiles: Sequence[RankProfile]) -> dict[tuple[str, int | None], float]:
    found: dict[tuple[str, int | None], float] = {}
    for one in profiles:
        for row in one.calls:
            key = row.call, row.bytes_from
            found[key] = min(row.shortest_s, found.get(key, row.shortest_s))
    return found


def _waiting(row: CallRow, shortest: dict[tuple[str, int | None], float]) -> float:
    return max(0.0, row.time_s - row.calls * shortest[row.call, row.bytes_from]) if row.waits else 0.0


def _parts_of(one: RankProfile, shortest: dict[tuple[str, int | None], float]) -> Parts:
    waiting, asking = sum(_waiting(row, shortest) for row in one.calls), one.asking_s
    outside = max(0.0, (one.main_s or 0.0) * max(1, one.threads) - one.mpi_s)
    return Parts(outside, waiting, asking, max(0.0, one.mpi_s - waiting - asking))


def _rank(one: RankProfile, parts: Parts, late_s: float) -> RankParts:
    times = one.milestones

    def between(begin: str, end: str) -> float | None:
        first, last = times[begin], times[end]
        return None if first is None or last is None else last - first

    return RankParts(
        rank=one.rank,
        host=one.host,
        spawned=one.spawned,
        state=one.state,
        main_s=one.main_s or 0.0,
        init_s=between("init_begin", "init_end"),
        finalize_s=between("finalize_begin", "finalize_end"),
        parts=parts,
        peers_late_s=late_s,
        inside=one.inside,
        last_call_s=None if one.last_call_s is None else one.last_call_s - (times["init_begin"] or 0.0),
    )
