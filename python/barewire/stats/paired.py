# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ratios of paired measurements: of the same block, with the same seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from barewire.stats.comparison import holm
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import finite, geometric_interval

Outcome = Literal["above", "below", "no difference", "undecided"]


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of the pairs' ratios, its interval, the smallest and the largest.

    There is no interval below 6 pairs, 8 at 99 %. `p` is that of Student's paired test of the logarithms, uncorrected:
    below 1 - confidence exactly where the interval excludes 1. None below 2 pairs.
    """

    value: float
    interval: tuple[float, float] | None
    low: float
    high: float
    pairs: int
    p: float | None


def paired_ratio(values: Sequence[float], references: Sequence[float], *, confidence: float = CONFIDENCE) -> Ratio:
    """Return the ratios of values to references, pair by pair; the interval is Student's, of the ratios' logarithms.

    A percentile bootstrap of 6 pairs would contain the true ratio in 88 % of cases only. ValueError unless there are
    equally many of both, at least one, all above 0.
    """
    above, below = finite(values), finite(references)
    if len(above) != len(below) or not ((above > 0).all() and (below > 0).all()):
        raise ValueError("ratios need as many values as references, all above 0")
    logs = np.log(above / below)
    interval = geometric_interval(above / below, confidence)
    low, high = float(np.exp(logs.min())), float(np.exp(logs.max()))
    return Ratio(float(np.exp(logs.mean())), interval, low, high, len(logs), _equality_p(logs))


def compare_ratios(ratios: Sequence[Ratio], *, margin: float = 0.02, confidence: float = CONFIDENCE) -> list[Outcome]:
    """Decide whether each ratio is above or below 1; all need an interval of this confidence.

    "no difference" if the interval lies within ±`margin` around 1, which is decided first, as in `compare_over_sizes`;
    "above" or "below" if p, corrected by Holm over all ratios of this call, is below 1 - `confidence`; else
    "undecided". So ratios that are all 1 are told from it in at most 1 - `confidence` of all calls.
    """
    corrected = holm([1.0 if ratio.p is None else ratio.p for ratio in ratios])
    return [_outcome(ratio, p, margin, confidence) for ratio, p in zip(ratios, corrected, strict=True)]


def _outcome(ratio: Ratio, p: float, margin: float, confidence: float) -> Outcome:
    if ratio.interval is None:
        raise ValueError("a ratio without an interval cannot be decided")
    if ratio.interval[0] >= 1 - margin and ratio.interval[1] <= 1 + margin:
        return "no difference"
    if p >= 1 - confidence:
        return "undecided"
    return "above" if ratio.value > 1 else "below"


def _equality_p(logs: NDArray[np.float64]) -> float | None:
    """Return p of "their mean is 0", two-sided; without any spread it is certain."""
    if len(logs) < 2:
        return None
    mean, error = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    from scipy import stats  # imported late, as in `intervals`

    return float(2 * stats.t.sf(abs(mean) / error, len(logs) - 1))
