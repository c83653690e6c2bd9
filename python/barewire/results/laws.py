# SPDX-License-Identifier: Apache-2.0 OR MIT
"""By which laws messages of a run go: ping-pongs of many sizes, in pieces, with the break points between them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from barewire.models.breakpoints import Break, Piecewise, find_breakpoints
from barewire.models.naming import read_mpi_subject
from barewire.results.run import Place, Run, Series

TEST = "pingpong"
# With fewer, any piece would fit.
SIZES_MIN = 8
# Headers of messages lie between a frame's payload and its MTU.
_HEADER_BYTES_MAX = 100


@dataclass(frozen=True)
class Law:
    """How the latency of one subject's messages follows from their size; times in µs."""

    place: Place
    subject: str
    variant: str
    fit: Piecewise

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "subject": self.subject,
            "variant": self.variant,
            "ranks": self.place.ranks,
            "pairs": self.place.pairs,
            "processes": self.place.processes,
            **asdict(self.fit),
        }


def laws_of(run: Run) -> list[Law]:
    """Of every subject and variant whose ping-pong was measured with 8 sizes or more."""
    found: dict[tuple[Place, str, str], list[Series]] = {}
    for one in run.series:
        if one.test == TEST and one.launch_medians:
            found.setdefault((one.place, one.subject, one.variant), []).append(one)
    laws = []
    for (place, subject, variant), series in found.items():
        by_size = sorted(series, key=lambda one: one.message_bytes)
        if len(by_size) >= SIZES_MIN:
            fit = find_breakpoints([one.message_bytes for one in by_size], [one.launch_medians for one in by_size])
            laws.append(Law(place, subject, variant, fit))
    return laws


def explanation(one: Break, subject: str, mtu: int | None) -> str:
    """What is known to change within the break's interval; "" if nothing is."""
    reasons = []
    mpi = read_mpi_subject(subject)
    eager = dict(mpi.settings).get("eager") if mpi is not None else None
    if eager is not None and _meets(one, int(eager)):
        reasons.append("the eager limit as set")
    if mtu is not None and _meets(one, mtu):
        reasons.append("a frame is full")
    return ", ".join(reasons)


def _meets(one: Break, limit_bytes: int) -> bool:
    """Whether a limit that may count headers in lies within the interval."""
    return one.low <= limit_bytes and limit_bytes - _HEADER_BYTES_MAX < one.high


def document(laws: Iterable[Law]) -> list[dict[str, Any]]:
    """All laws for `--json`."""
    return [law.to_json() for law in laws]
