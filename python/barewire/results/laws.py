# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Laws of a run's message times: ping-pongs of many sizes, in pieces, with the break points between them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from barewire.models.breakpoints import Piecewise, find_breakpoints
from barewire.results.run import Place, Run, Series

TEST = "pingpong"
# With fewer sizes any piece would fit.
SIZES_MIN = 8


@dataclass(frozen=True)
class Law:
    """The latency of one subject's messages as a function of their size; times in µs."""

    place: Place
    subject: str
    variant: str
    fit: Piecewise

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {
            "subject": self.subject,
            "variant": self.variant,
            "ranks": self.place.ranks,
            "pairs": self.place.pairs,
            "processes": self.place.processes,
            **asdict(self.fit),
        }


def laws_of(run: Run) -> list[Law]:
    """Return the law of every subject and variant whose ping-pong was measured with 8 sizes or more."""
    groups: dict[tuple[Place, str, str], list[Series]] = {}
    for each in run.series:
        if each.test == TEST and each.launch_medians:
            groups.setdefault((each.place, each.subject, each.variant), []).append(each)
    laws = []
    for (place, subject, variant), series in groups.items():
        by_size = sorted(series, key=lambda each: each.message_bytes)
        if len(by_size) >= SIZES_MIN:
            fit = find_breakpoints([each.message_bytes for each in by_size], [each.launch_medians for each in by_size])
            laws.append(Law(place, subject, variant, fit))
    return laws


def document(laws: Iterable[Law]) -> list[dict[str, Any]]:
    """Return all laws for `--json`."""
    return [law.to_json() for law in laws]
