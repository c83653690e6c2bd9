# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The profile of a flow: announcements, then signatures, then bounds of behaviour, then what was learnt. Pure."""

from dataclasses import dataclass

from barewire.sdn.classify.jobs import Jobs
from barewire.sdn.classify.policy import Policy
from barewire.sdn.flow import DEFAULT_PROFILE, FlowKey


@dataclass(frozen=True)
class Classification:
    """A flow's profile and its basis: announced, signature, behaviour, learnt or nothing."""

    profile: str = DEFAULT_PROFILE
    by: str = "nothing"
    volume_bytes: int | None = None


@dataclass(frozen=True)
class FlowCounters:
    """A flow's traffic so far."""

    packets: int
    bytes: int
    age_s: float


def classify(
    key: FlowKey, policy: Policy, jobs: Jobs, carried: FlowCounters | None = None, learnt: str | None = None
) -> Classification:
    """Classify a flow, with its statistics if available; `learnt` is the profile by the trained classifier, if sure."""
    job = jobs.of(key)
    if job is not None:
        return Classification(job.profile, "announced", job.volume_bytes(key))
    for signature in policy.signatures:
        if signature.traffic.fits(key):
            return Classification(signature.profile, "signature")
    if carried is not None:
        for behaviour in policy.behaviours:
            if behaviour.fits(key, carried.packets, carried.bytes, carried.age_s):
                return Classification(behaviour.profile, "behaviour")
    if learnt is not None:
        return Classification(learnt, "learnt")
    return Classification()
