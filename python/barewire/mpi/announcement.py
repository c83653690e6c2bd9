# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The announcement of a job to the network's controller; pure."""

from dataclasses import replace
from typing import Any

from barewire.mpi.fabrics import LABELS, LINK, PROVIDER, Setting
from barewire.mpi.job import Job
from barewire.mpi.placement import LOCAL_HOST

PROFILE = "mpi"
# How a fabric's messages appear on the wire. For other fabrics all traffic between the hosts is the job's.
_TRAFFIC = {PROVIDER: "llc", "tcp": "tcp"}


def announcement(job: Job, fabric: str, this_host: str) -> dict[str, Any]:
    """Return a job in the form of `POST /v1/jobs`; ranks are on consecutive hosts, as launchers place them."""
    names = [(this_host if host == LOCAL_HOST else host, count) for host, count in job.shares]
    protocol = _TRAFFIC.get(fabric)
    return {
        "name": job.program[0][-200:],
        "profile": PROFILE,
        "hosts": [host for host, _ in names],
        "ranks": [host for host, count in names for _ in range(count)],
        "traffic": [{"protocol": protocol}] if protocol else [],
    }


def labelled(job: Job, fabric: str, labels: str | None) -> Job:
    """Return the job with the labels that the controller offers, if its fabric uses them.

    Frames reach all of the controller's hosts. UDP has no tags, so it must not replace frames after 10 ms of silence:
    it would take a path of which only the controller could say that it is dead.
    """
    if labels is None or fabric != PROVIDER:
        return job
    by = "the network's controller"
    link = () if LINK in job.environment() else (Setting(LINK, "packet", by),)
    return replace(job, settings=(*job.settings, Setting(LABELS, labels, by), *link))
