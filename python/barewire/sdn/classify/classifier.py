# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From a flow to its profile: announcements win, then signatures, then behaviour. Pure."""

from dataclasses import dataclass

from barewire.sdn.classify.jobs import Jobs
from barewire.sdn.classify.policy import Policy
from barewire.sdn.flow import DEFAULT_PROFILE, FlowKey


@dataclass(frozen=True)
class Known:
    """What is known of a flow, and by what: announced, signature, behaviour or nothing."""

    profile: str = DEFAULT_PROFILE
    by: str = "nothing"
    volume_bytes: int | None = None


@dataclass(frozen=True)
class Carried:
    """What a flow has carried so far."""

    packets: int
    bytes: int
    age_s: float


def classify(key: FlowKey, policy: Policy, jobs: Jobs, carried: Carried | None = None) -> Known:
    """Say what a flow is, with its statistics if there are any."""
    job = jobs.of(key)
    if job is not None:
        return Known(job.profile, "announced", job.volume_bytes(key))
    for signature in policy.signatures:
        if signature.traffic.fits(key):
            return Known(signature.profile, "signature")
    if carried is not None:
        for behaviour in policy.behaviours:
            if behaviour.fits(key, carried.packets, carried.bytes, carried.age_s):
                return Known(behaviour.profile, "behaviour")
    return Known()
