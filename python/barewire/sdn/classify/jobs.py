# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Announced jobs with their hosts, ranks, traffic and patterns, each with a lease. No clock, no I/O."""

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barewire.errors import WrongUse
from barewire.sdn.classify.policy import PROFILE, SIGNATURES_MAX, Traffic, parse_traffic
from barewire.sdn.flow import FlowKey, Pattern

JOBS_MAX = 1000
RANKS_MAX = 100_000
PATTERNS_MAX = 1000
# Flows in all patterns of a job: 192 mappers × 192 reducers, about thirty times.
PATTERN_FLOWS_MAX = 1_000_000
LEASE_S_MIN, LEASE_S_MAX, LEASE_S = 1.0, 3600.0, 30.0
VOLUME_MAX_BYTES = 1 << 60
_KEYS = ("name", "profile", "hosts", "ranks", "traffic", "patterns", "lease_s")


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
        if self.current >= len(self.patterns):
            return None
        return self.patterns[self.current].get((key.source, key.destination))


class UnknownJobError(WrongUse):
    """The job does not exist, or no longer exists."""


class Jobs:
    """All announced jobs. `patterns` are their merged patterns: current, then after each job's next steps."""

    def __init__(self) -> None:
        """Begin without jobs."""
        self._jobs: dict[str, Job] = {}
        self.patterns: tuple[Pattern, ...] = ()

    @property
    def all(self) -> list[Job]:
        """Return the jobs, the oldest first."""
        return list(self._jobs.values())

    def get(self, job_id: str) -> Job:
        """Return a job."""
        if job_id not in self._jobs:
            raise UnknownJobError(
                f"there is no job {job_id}: it was withdrawn, or not renewed in time; announce it again"
            )
        return self._jobs[job_id]

    def of(self, key: FlowKey) -> Job | None:
        """Return the job of a flow: of several, one that specifies its traffic, then the latest."""
        newest_first = [job for job in reversed(self._jobs.values()) if job.has(key)]
        return max(newest_first, key=lambda job: bool(job.traffic), default=None)

    def announce(self, document: object, known_hosts: Collection[str], now: float) -> Job:
        """Add an announced job. WrongUse, without any effect, if the announcement is invalid."""
        if len(self._jobs) >= JOBS_MAX:
            raise WrongUse(f"there are {JOBS_MAX} jobs already: withdraw some")
        job = replace(parse_job(document, known_hosts), id=secrets.token_hex(8))
        job = replace(job, ends_s=now + job.lease_s)
        self._jobs[job.id] = job
        self._merge()
        return job

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
        self._merge()
        return self._jobs[job_id]

    def append(self, job_id: str, patterns: object, now: float) -> Job:
        """Announce further patterns of a job."""
        job = self.renew(job_id, now)
        more = _patterns(patterns, job.hosts, job.ranks, len(job.patterns), sum(map(len, job.patterns)))
        self._jobs[job_id] = replace(job, patterns=job.patterns + more)
        self._merge()
        return self._jobs[job_id]

    def withdraw(self, job_id: str) -> None:
        """Forget a job."""
        self.get(job_id)
        del self._jobs[job_id]
        self._merge()

    def expire(self, now: float) -> list[Job]:
        """Forget jobs that were not renewed; return them."""
        over = [job for job in self._jobs.values() if job.ends_s <= now]
        for job in over:
            del self._jobs[job.id]
        if over:
            self._merge()
        return over

    def next_s(self) -> float | None:
        """Return when the next lease ends."""
        return min((job.ends_s for job in self._jobs.values()), default=None)

    def _merge(self) -> None:
        # A new tuple after each change, else the same object: strategies cache their plan by it.
        steps = max((len(job.patterns) - job.current for job in self._jobs.values()), default=0)
        self.patterns = tuple(
            _together([job.patterns[job.current + step] for job in self._jobs.values() if step < _left(job)])
            for step in range(steps)
        )


def parse_job(document: object, known_hosts: Collection[str]) -> Job:
    """Parse an announcement. WrongUse with the remedy if it is invalid."""
    if not isinstance(document, dict):
        raise WrongUse('an announcement is a JSON object, such as {"profile": "mpi", "hosts": ["h1", "h2"]}')
    if unknown := sorted(document.keys() - set(_KEYS)):
        raise WrongUse(f"an announcement has no '{unknown[0]}'; it has {', '.join(_KEYS)}")
    profile = document.get("profile")
    if not isinstance(profile, str) or not PROFILE.fullmatch(profile):
        raise WrongUse('an announcement needs a profile, such as "mpi": letters, digits, . _ -, at most 63')
    hosts = _names(document.get("hosts"), "hosts", known_hosts)
    if not hosts:
        raise WrongUse('an announcement needs hosts, such as ["h1", "h2"]')
    ranks = _names(document.get("ranks", []), "ranks", hosts)
    traffic = document.get("traffic", [])
    if (
        not isinstance(traffic, list)
        or not all(isinstance(entry, dict) for entry in traffic)
        or len(traffic) > SIGNATURES_MAX
    ):
        raise WrongUse(f'traffic is a list of at most {SIGNATURES_MAX}, such as [{{"protocol": "tcp", "ports": [22]}}]')
    lease_s = document.get("lease_s", LEASE_S)
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
        raise WrongUse(f"lease_s is {LEASE_S_MIN:g} to {LEASE_S_MAX:g} seconds, not {lease_s!r}")
    name = document.get("name", "")
    if not isinstance(name, str) or len(name) > 200 or not name.isprintable():
        raise WrongUse("a job's name is printable text of at most 200 characters")
    return Job(
        "",
        name,
        profile,
        frozenset(hosts),
        tuple(ranks),
        tuple(parse_traffic(entry, f"traffic {number}") for number, entry in enumerate(traffic)),
        _patterns(document.get("patterns", []), frozenset(hosts), tuple(ranks), 0, 0),
        lease_s=float(lease_s),
    )


def _names(given: object, what: str, known: Collection[str]) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given) or len(given) > RANKS_MAX:
        raise WrongUse(f'{what} are a list of at most {RANKS_MAX} names of hosts, such as ["h1", "h2"]')
    missing = sorted(set(given) - set(known))
    if missing:
        listed = ", ".join(sorted(known)[:20]) or "none yet: give the controller a hosts file"
        raise WrongUse(f"unknown {what}: {', '.join(missing[:20])}; known are {listed}")
    return given


def _patterns(
    given: object, hosts: frozenset[str], ranks: tuple[str, ...], before: int, flows: int
) -> tuple[Pattern, ...]:
    if not isinstance(given, list) or before + len(given) > PATTERNS_MAX:
        raise WrongUse(f"patterns are a list, of at most {PATTERNS_MAX} in all")
    found = []
    for number, pattern in enumerate(given, start=before):
        if not isinstance(pattern, list):
            raise WrongUse(f'pattern {number}: is a list of flows, such as [{{"from": 0, "to": 1, "bytes": 2000000}}]')
        flows += len(pattern)
        if flows > PATTERN_FLOWS_MAX:
            raise WrongUse(
                f"a job's patterns have at most {PATTERN_FLOWS_MAX} flows in all; announce them one after another"
            )
        found.append(_pattern(pattern, hosts, ranks, f"pattern {number}"))
    return tuple(found)


def _pattern(flows: list[Any], hosts: frozenset[str], ranks: tuple[str, ...], where: str) -> Pattern:
    volumes: Counter[tuple[str, str]] = Counter()
    for flow in flows:
        if not isinstance(flow, dict) or flow.keys() != {"from", "to", "bytes"}:
            raise WrongUse(f'{where}: a flow is {{"from": 0, "to": 1, "bytes": 2000000}}, not {str(flow)[:100]}')
        volume = flow["bytes"]
        if isinstance(volume, bool) or not isinstance(volume, int) or not 0 < volume <= VOLUME_MAX_BYTES:
            raise WrongUse(f"{where}: bytes are a whole number above 0, not {str(volume)[:100]}")
        ends = _host(flow["from"], hosts, ranks, where), _host(flow["to"], hosts, ranks, where)
        if ends[0] != ends[1]:
            volumes[ends] += volume
    return dict(volumes)


def _host(end: object, hosts: frozenset[str], ranks: tuple[str, ...], where: str) -> str:
    if isinstance(end, int) and not isinstance(end, bool) and 0 <= end < len(ranks):
        return ranks[end]
    if isinstance(end, str) and end in hosts:
        return end
    raise WrongUse(
        f"{where}: {str(end)[:100]!r} is neither a rank of the {len(ranks)} in ranks nor one of the job's hosts"
    )


def _left(job: Job) -> int:
    return len(job.patterns) - job.current


def _together(patterns: Sequence[Pattern]) -> Pattern:
    if len(patterns) == 1:
        return patterns[0]
    volumes: Counter[tuple[str, str]] = Counter()
    for pattern in patterns:
        volumes.update(pattern)
    return dict(volumes)


def job_document(job: Job, now: float) -> Mapping[str, Any]:
    """Return a job as JSON."""
    return {
        "id": job.id,
        "name": job.name,
        "profile": job.profile,
        "hosts": sorted(job.hosts),
        "ranks": list(job.ranks),
        "traffic": [
            {"protocol": traffic.protocol, "ports": [f"{low}-{high}" for low, high in traffic.ports]}
            for traffic in job.traffic
        ],
        "patterns": len(job.patterns),
        "current": job.current,
        "lease_s": job.lease_s,
        "ends_in_s": round(max(job.ends_s - now, 0.0), 3),
    }
