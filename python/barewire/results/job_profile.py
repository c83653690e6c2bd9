# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The time of a whole job, combined from the profiles of its processes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.results.profile import CallRow, Inside, RankProfile, Wait, merged_row

LONGEST_KEPT = 16


@dataclass(frozen=True)
class Parts:
    """A rank's time between MPI_Init's end and MPI_Finalize, in seconds of all its threads that call MPI.

    A thread other than the first that called MPI counts from its first call to its last.
    Waiting is the time of a blocking call beyond the shortest call of the same kind and size in any rank.
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
    """One rank; `peers_late_s` is how much longer the first thread of the busiest rank worked outside MPI."""

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
    # After the start of MPI_Init; None without any call.
    last_call_s: float | None


@dataclass(frozen=True)
class JobCall:
    """Calls of one kind and size over all ranks; times are sums over the ranks."""

    row: CallRow
    waiting_s: float


@dataclass(frozen=True)
class JobProfile:
    """The profile of one launch."""

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
        """Time from the end of MPI_Init to MPI_Finalize: the maximum of the ranks."""
        return max((rank.main_s for rank in self.ranks), default=0.0)

    @property
    def mean(self) -> Parts:
        """The mean over the ranks."""
        count = max(1, len(self.ranks))
        names = ("outside_s", "waiting_s", "asking_s", "moving_s")
        return Parts(*(sum(getattr(rank.parts, name) for rank in self.ranks) / count for name in names))

    @property
    def mpi_share(self) -> float:
        """The mean rank's share of time in MPI, 0 to 1."""
        mean = self.mean
        total_s = mean.outside_s + mean.mpi_s
        return mean.mpi_s / total_s if total_s > 0 else 0.0

    @property
    def late_s(self) -> float:
        """How long the mean rank must wait because others work longer outside MPI."""
        return sum(rank.peers_late_s for rank in self.ranks) / max(1, len(self.ranks))

    @property
    def cost_s(self) -> float:
        """Time that the profiler took from the mean rank."""
        return self.recorded_calls * self.cost_per_call_s / max(1, len(self.ranks))

    @property
    def unfinished(self) -> tuple[RankParts, ...]:
        """Ranks that did not finish MPI_Finalize."""
        return tuple(rank for rank in self.ranks if rank.state != "finalised")

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
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
            "ranks": [asdict(rank) for rank in self.ranks],
            "calls": [asdict(call.row) | {"waiting_s": call.waiting_s} for call in self.calls],
            "longest": [asdict(wait) for wait in self.longest],
            "threads_unrecorded": self.threads_unrecorded,
        }


def combine_profiles(profiles: Sequence[RankProfile], expected_ranks: int) -> JobProfile:
    """Combine all processes of one job; `expected_ranks` is the requested number."""
    shortest = _shortest(profiles)
    parts = [_parts_of(profile, shortest) for profile in profiles]
    working = [_first_outside_s(profile) for profile in profiles]
    # A spawned world works separately, so its ranks are late relative to their own world.
    busiest = {
        world: max(
            (work for work, profile in zip(working, profiles, strict=True) if profile.spawned == world), default=0.0
        )
        for world in (False, True)
    }
    ranks = [
        _rank(profile, rank_parts, busiest[profile.spawned] - work)
        for profile, rank_parts, work in zip(profiles, parts, working, strict=True)
    ]
    rows: dict[tuple[str, int | None], JobCall] = {}
    for profile in profiles:
        for row in profile.calls:
            key, waiting = (row.call, row.bytes_from), _waiting(row, shortest)
            previous = rows.get(key)
            rows[key] = (
                JobCall(row, waiting)
                if previous is None
                else JobCall(merged_row(previous.row, row), previous.waiting_s + waiting)
            )
    longest = sorted((wait for profile in profiles for wait in profile.longest), key=lambda wait: -wait.time_s)
    return JobProfile(
        ranks=tuple(ranks),
        calls=tuple(sorted(rows.values(), key=lambda profile: -profile.row.time_s)),
        longest=tuple(longest[:LONGEST_KEPT]),
        bins=tuple((profile.bin_s, profile.bins) for profile in profiles),
        library=profiles[0].library if profiles else "",
        expected_ranks=expected_ranks,
        threads_unrecorded=sum(profile.threads_unrecorded for profile in profiles),
        recorded_calls=sum(profile.count for profile in profiles),
        cost_per_call_s=max((profile.cost_per_call_s for profile in profiles), default=0.0),
    )


def _shortest(profiles: Sequence[RankProfile]) -> dict[tuple[str, int | None], float]:
    shortest: dict[tuple[str, int | None], float] = {}
    for profile in profiles:
        for row in profile.calls:
            key = row.call, row.bytes_from
            shortest[key] = min(row.shortest_s, shortest.get(key, row.shortest_s))
    return shortest


def _waiting(row: CallRow, shortest: dict[tuple[str, int | None], float]) -> float:
    return max(0.0, row.time_s - row.calls * shortest[row.call, row.bytes_from]) if row.waits else 0.0


def _first_outside_s(profile: RankProfile) -> float:
    """Return the time outside MPI of the thread that called MPI first.

    Others are left out: a rank with more threads is not busier for that.
    """
    return max(0.0, (profile.main_s or 0.0) - sum(thread.mpi_s for thread in profile.each_thread[:1]))


def _parts_of(profile: RankProfile, shortest: dict[tuple[str, int | None], float]) -> Parts:
    waiting, asking = sum(_waiting(row, shortest) for row in profile.calls), profile.asking_s
    others = sum(max(0.0, thread.calling_s - thread.mpi_s) for thread in profile.each_thread[1:])
    return Parts(_first_outside_s(profile) + others, waiting, asking, max(0.0, profile.mpi_s - waiting - asking))


def _rank(profile: RankProfile, parts: Parts, late_s: float) -> RankParts:
    times = profile.milestones

    def between(begin: str, end: str) -> float | None:
        first, last = times[begin], times[end]
        return None if first is None or last is None else last - first

    return RankParts(
        rank=profile.rank,
        host=profile.host,
        spawned=profile.spawned,
        state=profile.state,
        main_s=profile.main_s or 0.0,
        init_s=between("init_begin", "init_end"),
        finalize_s=between("finalize_begin", "finalize_end"),
        parts=parts,
        peers_late_s=late_s,
        inside=profile.inside,
        last_call_s=None if profile.last_call_s is None else profile.last_call_s - (times["init_begin"] or 0.0),
    )
