# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announced jobs with their hosts, ranks, traffic and patterns, each with a lease. No clock, no I/O.

Every change costs what the changed job costs, regardless of the others.
"""

import heapq
import itertools
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from barewire.errors import WrongUse
from barewire.sdn.classify.announcement import (
    LEASE_S,
    Announcement,
    PatternDocument,
    check_names,
    patterns_of,
    read,
    traffic_of,
)
from barewire.sdn.classify.policy import Traffic
from barewire.sdn.flow import FlowKey, Pattern

# Quotas: jobs at once, and flows of all their patterns, which take 100 to 200 bytes each.
JOBS_MAX = 1000
FLOWS_MAX = 4_000_000
# Ends of leases that are kept, with outdated ones.
_ENDS_MAX = 2 * JOBS_MAX
# Flows whose job is remembered.
_OWNERS_MAX = 100_000


@dataclass(frozen=True)
class Job:
    """An announced job. `ranks` is each rank's host; `current` the number of the current pattern, if any."""

    id: str
    name: str
    profile: str
    hosts: frozenset[str]
    ranks: tuple[str, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    current: int = 0
    lease_s: float = LEASE_S
    ends_s: float = 0.0

    def has(self, key: FlowKey) -> bool:
        """Return whether a flow belongs to this job."""
        between = key.source in self.hosts and key.destination in self.hosts
        return between and (not self.traffic or any(traffic.fits(key) for traffic in self.traffic))

    def volume_bytes(self, key: FlowKey) -> int | None:
        """Return the announced volume between a flow's hosts in the current pattern."""
        return None if self.pattern is None else self.pattern.get((key.source, key.destination))

    @property
    def pattern(self) -> Pattern | None:
        """The current pattern."""
        return self.patterns[self.current] if self.current < len(self.patterns) else None

    @property
    def flows(self) -> int:
        """The number of flows in all patterns."""
        return sum(map(len, self.patterns))


class UnknownJobError(WrongUse):
    """The job does not exist, or no longer exists."""

    def __init__(self, job_id: str) -> None:
        """Say what to do."""
        super().__init__(f"there is no job {job_id}: it was withdrawn, or not renewed in time; announce it again")


class Jobs:
    """All announced jobs."""

    def __init__(self) -> None:
        """Begin without jobs."""
        self._jobs: dict[str, Job] = {}
        self._flows = 0
        # Ends of leases, some outdated: a renewal adds none.
        self._ends: list[tuple[float, str]] = []
        # By host, the jobs with and without `traffic`, the oldest first.
        self._specific: dict[str, dict[str, None]] = {}
        self._general: dict[str, dict[str, None]] = {}
        # By flow: its job, and the number of jobs announced so far when that was found out.
        self._owners: dict[FlowKey, tuple[str | None, int]] = {}
        self._announced = 0
        self._numbers: dict[str, int] = {}

    @property
    def all(self) -> list[Job]:
        """Return the jobs, the oldest first."""
        return list(self._jobs.values())

    @property
    def patterns(self) -> Mapping[str, Pattern]:
        """Return the current pattern of each job that has one."""
        return {job.id: job.pattern for job in self._jobs.values() if job.pattern is not None}

    def find(self, job_id: str) -> Job | None:
        """Return a job, None if there is none."""
        return self._jobs.get(job_id)

    def get(self, job_id: str) -> Job:
        """Return a job."""
        if job_id not in self._jobs:
            raise UnknownJobError(job_id)
        return self._jobs[job_id]

    def of(self, key: FlowKey) -> Job | None:
        """Return the job of a flow: of several, one that specifies its traffic, then the latest.

        A flow is compared with all jobs once, then with later ones only, until its job is withdrawn.
        """
        owner, since = self._owners.get(key, (None, 0))
        if owner is not None and owner not in self._jobs:
            owner, since = None, 0
        if since < self._announced:
            later = self._latest(self._specific, key, since)
            if later is None and (owner is None or not self._jobs[owner].traffic):
                later = self._latest(self._general, key, since)
            owner = later or owner
            if len(self._owners) >= _OWNERS_MAX:
                self._owners.clear()
            self._owners[key] = owner, self._announced
        return None if owner is None else self._jobs[owner]

    def add(self, job: Job, now: float) -> Job:
        """Add an announced job. WrongUse, without any effect, above the quotas."""
        if len(self._jobs) >= JOBS_MAX:
            raise WrongUse(f"there are {JOBS_MAX} jobs already: withdraw some")
        self._check_flows(job.flows)
        job = replace(job, id=secrets.token_hex(8), ends_s=now + job.lease_s)
        self._insert(job)
        return job

    def restore(self, job: Job) -> None:
        """Add or replace a job of the leader, which has checked it."""
        before = self._jobs.get(job.id)
        if before is None:
            self._insert(job)
            return
        self._flows += job.flows - before.flows
        self._jobs[job.id] = job
        if job.ends_s < before.ends_s:
            self._note_end(job)

    def renew_all(self, now: float) -> None:
        """Renew all leases, for jobs that had no controller to renew them at."""
        for job_id in self._jobs:
            self.renew(job_id, now)

    def renew(self, job_id: str, now: float) -> Job:
        """Extend a job's lease by its length."""
        job = self.get(job_id)
        self._jobs[job_id] = replace(job, ends_s=now + job.lease_s)
        return self._jobs[job_id]

    def step(self, job_id: str, to: int | None, now: float) -> Job:
        """Step to a job's next pattern, or to pattern number `to`."""
        job = self.renew(job_id, now)
        wanted = job.current + 1 if to is None else to
        if not 0 <= wanted < len(job.patterns):
            raise WrongUse(
                f"job {job_id} has {len(job.patterns)} patterns, numbered from 0, none is {wanted}: append more"
            )
        self._jobs[job_id] = replace(job, current=wanted)
        return self._jobs[job_id]

    def parse_patterns(self, job_id: str, patterns: list[PatternDocument]) -> tuple[Pattern, ...]:
        """Return further patterns of a job. WrongUse names the mistake."""
        job = self.get(job_id)
        return patterns_of(patterns, job.hosts, job.ranks, len(job.patterns), job.flows)

    def append(self, job_id: str, patterns: tuple[Pattern, ...], now: float) -> Job:
        """Add parsed patterns to a job."""
        job = self.get(job_id)
        flows = sum(map(len, patterns))
        self._check_flows(flows)
        self._flows += flows
        self._jobs[job_id] = replace(job, patterns=job.patterns + patterns, ends_s=now + job.lease_s)
        return self._jobs[job_id]

    def withdraw(self, job_id: str) -> None:
        """Forget a job."""
        job = self.get(job_id)
        del self._jobs[job_id], self._numbers[job_id]
        self._flows -= job.flows
        index = self._specific if job.traffic else self._general
        for host in job.hosts:
            del index[host][job_id]
            if not index[host]:
                del index[host]

    def expire(self, now: float) -> list[Job]:
        """Forget jobs that were not renewed; return them."""
        over = []
        while self._ends and self._ends[0][0] <= now:
            _, job_id = heapq.heappop(self._ends)
            job = self._jobs.get(job_id)
            if job is None:
                continue
            if job.ends_s <= now:
                self.withdraw(job_id)
                over.append(job)
            else:
                heapq.heappush(self._ends, (job.ends_s, job_id))
        return over

    def next_s(self) -> float | None:
        """Return when the next lease may end."""
        return self._ends[0][0] if self._ends else None

    def _insert(self, job: Job) -> None:
        self._jobs[job.id] = job
        self._announced += 1
        self._numbers[job.id] = self._announced
        self._flows += job.flows
        self._note_end(job)
        index = self._specific if job.traffic else self._general
        for host in job.hosts:
            index.setdefault(host, {})[job.id] = None

    def _note_end(self, job: Job) -> None:
        if len(self._ends) >= _ENDS_MAX:
            # A standby never expires jobs, so it would keep an end of each job that there ever was.
            self._ends = [(one.ends_s, one.id) for one in self._jobs.values()]
            heapq.heapify(self._ends)
        heapq.heappush(self._ends, (job.ends_s, job.id))

    def _latest(self, index: Mapping[str, dict[str, None]], key: FlowKey, since: int) -> str | None:
        none: dict[str, None] = {}
        candidates = min(index.get(key.source, none), index.get(key.destination, none), key=len)
        later = itertools.takewhile(lambda job_id: self._numbers[job_id] > since, reversed(candidates))
        return next((job_id for job_id in later if self._jobs[job_id].has(key)), None)

    def _check_flows(self, more: int) -> None:
        if self._flows + more > FLOWS_MAX:
            raise WrongUse(
                f"the patterns of all jobs would have {self._flows + more} flows, at most {FLOWS_MAX} are possible: "
                "withdraw jobs, or announce fewer patterns ahead"
            )


class Merged:
    """The current patterns of all jobs as one, updated by what has changed."""

    def __init__(self) -> None:
        """Begin without patterns."""
        self._parts: dict[str, Pattern] = {}
        self._volumes: Counter[tuple[str, str]] = Counter()

    def update(self, parts: Mapping[str, Pattern]) -> tuple[Pattern, ...]:
        """Return the sum of each job's current pattern, as the strategies' view has it; () if there is none."""
        for job_id in [job_id for job_id, part in self._parts.items() if parts.get(job_id) is not part]:
            for pair, volume in self._parts.pop(job_id).items():
                self._volumes[pair] -= volume
                if not self._volumes[pair]:
                    del self._volumes[pair]
        for job_id, part in parts.items():
            if job_id not in self._parts:
                self._parts[job_id] = part
                for pair, volume in part.items():
                    self._volumes[pair] += volume
        return (dict(self._volumes),) if self._parts else ()


def parse_job(document: object, known_hosts: Collection[str]) -> Job:
    """Parse an announcement, JSON or its values. WrongUse with the remedy if it is invalid."""
    given = read(document, Announcement)
    check_names(given.hosts, "hosts", known_hosts)
    hosts = frozenset(given.hosts)
    check_names(given.ranks, "ranks", hosts)
    if not given.name.isprintable():
        raise WrongUse("a job's name is printable text of at most 200 characters")
    return Job(
        "",
        given.name,
        given.profile,
        hosts,
        tuple(given.ranks),
        traffic_of(given.traffic),
        patterns_of(given.patterns, hosts, given.ranks, 0, 0),
        lease_s=given.lease_s,
    )
