# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks measured values for plausibility against their limit."""

from typing import Literal

from barewire.models.naming import UDP, read_mpi_subject, read_subject
from barewire.models.wire import Protocol

Verdict = Literal["ok", "impossible", "faster than floor", "no limit known", "no loss-free sample"]
LimitKind = Literal["wire", "floor"]
Interval = tuple[float, float]

# More than the difference of two hosts' clocks, a shaper's rounding, and the rounding of a printed digit.
WIRE_TOLERANCE = 0.005

# LLC uses plain frames: its headers are its own cost, not part of the limit.
_PROTOCOLS: dict[str, Protocol] = {
    "tcp": "tcp",
    "udp": "udp",
    **dict.fromkeys(
        ("raw", "llc1", "llc2", "llc3", "kernel-llc2", "endpoint", "messages", "libfabric", "floor"), "raw"
    ),
    "libfabric-tcp": "tcp",
    "libfabric-udp": "udp",
}
# The least that every MPI library sends of a message over a fabric. UCX is only used over TCP.
_MPI_PROTOCOLS: dict[str, Protocol] = {
    "barewire": "raw",
    **dict.fromkeys(("tcp", "ofi-tcp", "ucx"), "tcp"),
    **dict.fromkeys(("udp", "ofi-udp"), "udp"),
}


def protocol_of(subject: str) -> Protocol | None:
    """Return the protocol of a subject's frames ("tcp/block" → "tcp"), or None without a model."""
    mpi = read_mpi_subject(subject)
    if mpi is not None:
        return _MPI_PROTOCOLS.get(mpi.fabric)
    transport, link, *_ = read_subject(subject)
    return "udp" if link == UDP else _PROTOCOLS.get(transport)


def fraction_of_limit(median: float, limit: float, *, lower_is_better: bool) -> float:
    """Return the fraction of the limit; 1 is the limit, above 1 is better than it. ValueError unless both are > 0."""
    if not (median > 0 and limit > 0):
        raise ValueError(f"a median and a limit must be above 0, not {median} and {limit}")
    return limit / median if lower_is_better else median / limit


def wire_verdict(median: float, limit: float, *, lower_is_better: bool) -> Verdict:
    """Return `impossible` if `median` exceeds the wire's limit by more than 0.5 %."""
    beaten = fraction_of_limit(median, limit, lower_is_better=lower_is_better) > 1 + WIRE_TOLERANCE
    return "impossible" if beaten else "ok"


def floor_verdict(subject: str, interval: Interval, floor: Interval, *, lower_is_better: bool) -> Verdict:
    """Judge a subject by the measured floor; both are intervals of the median in the same unit.

    The floor is a measurement, so only disjoint intervals count. Raw frames cannot beat their own floor. The kernel's
    TCP and UDP can: they transfer super-frames and copy on the receiver's core, which a loop of plain frames does not.
    For them the floor is a reference, not a limit.
    """
    beaten = interval[1] < floor[0] if lower_is_better else interval[0] > floor[1]
    if not beaten:
        return "ok"
    return "impossible" if protocol_of(subject) == "raw" else "faster than floor"
