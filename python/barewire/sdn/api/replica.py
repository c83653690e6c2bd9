# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the leader tells its standby, as frames of MessagePack: what the switches' tables do not hold.

    jobs with their patterns, leases and owners · strategies set at run time · what was recognised · meters' rates

Placed flows, hosts and the rules themselves are read back from the switches by whoever takes over. Each frame is also a
sign of life: ten a second. A stream begins with everything, a pattern per frame, and continues with changes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from barewire.sdn.classify.jobs import Job
from barewire.sdn.classify.recognition import Conversation, Verdict
from barewire.sdn.controller.core import Controller
from barewire.sdn.flow import DEFAULT_PROFILE, Pattern
from barewire.sdn.strategies import named
from barewire.topology import Port

# Of a frame, before it: its length in bytes.
LENGTH_BYTES = 4
# A pattern between 1000 hosts, each with each, takes 20 MB.
FRAME_BYTES_MAX = 256 << 20
# Interval at which recognised flows and meters' rates are compared with what was sent.
SLOW_S = 1.0
# Recognised conversations compared at a time, about a millisecond.
_PART = 2000


class JobState(msgspec.Struct, omit_defaults=True):
    """A job that is new or changed: `job`, without patterns, if it is new, and patterns that are added to it."""

    id: str
    ends_in_s: float
    current: int
    job: Job | None = None
    owner: str | None = None
    patterns: list[Pattern] = []


class VerdictState(msgspec.Struct, omit_defaults=True):
    """What is recognised at two ends, a conversation's, or at one, a service's; no profile: no longer."""

    ends: Conversation
    profile: str = ""
    probability: float = 0.0


class Frame(msgspec.Struct, omit_defaults=True):
    """A sign of life of a controller and, from the leader, what has changed."""

    is_leader: bool
    generation: int
    # Those that answer it.
    switches: int
    # A hash of what both controllers must have been started with.
    configuration: str
    # Everything before this frame is void.
    begins: bool = False
    jobs: list[JobState] = []
    ended: list[str] = []
    strategies: dict[str, str] | None = None
    verdicts: list[VerdictState] = []
    # By switch and port.
    meters: list[tuple[str, int, list[int]]] = []


_DECODER = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Return a frame's bytes, with their length before them."""
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode(body: bytes) -> Frame:
    """Decode a frame. ValueError if it is not one."""
    return _DECODER.decode(body)


def configuration_of(core: Controller) -> str:
    """Return a hash of what a pair must agree on: hosts' names, signatures, bounds, tenants, time-outs."""
    named = sorted((host.name, host.mac) for host in core.hosts.by_mac.values() if host.is_named)
    tenants = [(one.name, sorted(one.hosts), one.share, one.ceiling) for one in core.slices.tenants.all]
    parts = (named, core.policy.signatures, core.policy.behaviours, tenants, core.settings)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Outgoing:
    """What one standby has been told by one leader."""

    def __init__(self, core: Controller) -> None:
        """Begin with nothing told."""
        self.core = core
        self._has_begun = False
        self._jobs: dict[str, Job] = {}
        self._strategies: dict[str, str] | None = None
        self._verdicts: dict[Conversation, str] = {}
        self._meters: dict[Port, list[int]] = {}
        self._slow_s = 0.0

    def changes(self, head: Frame, now: float) -> Iterator[Frame]:
        """Yield what has changed since the last call, at least one frame; `head` has the fields of all frames.

        The controller may go on between two frames.
        """
        core = self.core
        jobs = {job.id: job for job in core.jobs.all}
        ended = [job_id for job_id in self._jobs if job_id not in jobs]
        for job_id in ended:
            del self._jobs[job_id]
        strategies = None
        if core.policy.strategies != self._strategies:
            self._strategies = strategies = dict(core.policy.strategies)
        begins, self._has_begun = not self._has_begun, True
        yield msgspec.structs.replace(head, begins=begins, ended=ended, strategies=strategies)
        for job in jobs.values():
            if self._jobs.get(job.id) is not job:
                yield from self._job(job, head, now)
        if now >= self._slow_s:
            self._slow_s = now + SLOW_S
            yield from self._recognised(head)
            meters = {port: rates for port, rates in core.slices.rates().items() if self._meters.get(port) != rates}
            self._meters |= meters
            if meters:
                told = [(port.node, port.number, rates) for port, rates in meters.items()]
                yield msgspec.structs.replace(head, meters=told)

    def _job(self, job: Job, head: Frame, now: float) -> Iterator[Frame]:
        known = self._jobs.get(job.id)
        self._jobs[job.id] = job
        owner = self.core.slices.owners.get(job.id)
        state = JobState(job.id, job.ends_s - now, job.current)
        new = JobState(job.id, job.ends_s - now, job.current, replace(job, patterns=()), owner.name if owner else None)
        yield msgspec.structs.replace(head, jobs=[new if known is None else state])
        for pattern in job.patterns[0 if known is None else len(known.patterns) :]:
            more = msgspec.structs.replace(state, patterns=[pattern])
            yield msgspec.structs.replace(head, jobs=[more])

    def _recognised(self, head: Frame) -> Iterator[Frame]:
        before, self._verdicts = self._verdicts, {}
        verdicts = self.core.recognition.verdicts()
        for at in range(0, len(verdicts), _PART):
            changed = []
            for ends, verdict in verdicts[at : at + _PART]:
                self._verdicts[ends] = verdict.profile
                if before.pop(ends, None) != verdict.profile:
                    changed.append(VerdictState(ends, verdict.profile, verdict.probability))
            yield msgspec.structs.replace(head, verdicts=changed)
        if before:
            yield msgspec.structs.replace(head, verdicts=[VerdictState(ends) for ends in before])


def apply(core: Controller, frame: Frame, now: float) -> None:
    """Apply a leader's frame to the core of a standby; one that `begins` needs a core without state.

    The core emits an event for each strategy that cannot be loaded here.
    """
    if frame.strategies is not None:
        core.policy = replace(core.policy, strategies=_loadable(core, frame.strategies))
    for job_id in frame.ended:
        if core.jobs.find(job_id) is not None:
            core.jobs.withdraw(job_id)
            core.slices.owners.pop(job_id, None)
    tenants = {tenant.name: tenant for tenant in core.slices.tenants.all}
    for state in frame.jobs:
        job = state.job or core.jobs.find(state.id)
        if job is None:
            continue  # it has ended
        patterns = (*job.patterns, *state.patterns)
        core.jobs.restore(replace(job, patterns=patterns, current=state.current, ends_s=now + state.ends_in_s))
        if state.owner in tenants:
            core.slices.owners[state.id] = tenants[state.owner]
    for verdict in frame.verdicts:
        sure = Verdict(verdict.profile, verdict.probability, now) if verdict.profile else None
        core.recognition.restore(verdict.ends, sure)
    for switch, number, rates in frame.meters:
        core.slices.restore(Port(switch, number), rates)


def _loadable(core: Controller, strategies: Mapping[str, str]) -> dict[str, str]:
    """Return the leader's strategies; where one cannot be loaded, as a plug-in that is missing here, our own."""
    found = {}
    for profile, strategy in strategies.items():
        try:
            named(strategy)
            found[profile] = strategy
        except Exception as error:  # a plug-in's mistake must not end the standby
            if own := core.policy.strategies.get(profile):
                found[profile] = own
            instead = own or f"that of {DEFAULT_PROFILE}"
            core.outbox.emit("strategy failed", f"{profile} has {instead} here, not the leader's {strategy}: {error}")
    return found
