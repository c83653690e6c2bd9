# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The result of a trial: which fabric is faster, whether exit codes and output agree, where the time goes; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from barewire.results.agreement import Agreement
from barewire.results.job_profile import JobProfile
from barewire.stats.comparison import Comparison, compare_over_sizes
from barewire.stats.confidence import CONFIDENCE, interval_name
from barewire.stats.intervals import median_interval

WHOLE, MAIN = "whole launch", "MPI_Init to MPI_Finalize"


@dataclass(frozen=True)
class Contest:
    """Comparison of the same time of launches over both fabrics, in seconds."""

    what: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    result: Comparison

    def medians(self) -> tuple[float, float]:
        """Return the medians of both fabrics."""
        return float(np.median(self.first)), float(np.median(self.second))

    def intervals(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """Return the intervals of the medians, as sure as the comparison; None below 6 launches (8 at 99 %)."""
        sure = self.result.confidence
        return median_interval(self.first, sure), median_interval(self.second, sure)

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        medians, intervals = self.medians(), self.intervals()
        return {
            "what": self.what,
            "unit": "s",
            "first": list(self.first),
            "second": list(self.second),
            "medians": list(medians),
            interval_name(self.result.confidence): list(intervals),
            **asdict(self.result),
        }


@dataclass(frozen=True)
class Outcome:
    """A completed trial. `fabrics` are the tried one and the one that it is compared with."""

    program: str
    fabrics: tuple[str, str]
    contests: tuple[Contest, ...]
    agreement: Agreement
    profiles: Mapping[str, JobProfile]

    @property
    def confidence(self) -> float:
        """Confidence of its intervals and verdicts."""
        return self.contests[0].result.confidence


def contest(
    what: str, first: Sequence[float], second: Sequence[float], *, seed: int, confidence: float = CONFIDENCE
) -> Contest:
    """Compare times; ValueError if there are none, or if any is not above 0."""
    (result,) = compare_over_sizes([(first, second)], lower_is_better=True, confidence=confidence, seed=seed)
    return Contest(what, tuple(first), tuple(second), result)
