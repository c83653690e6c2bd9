# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ratios of paired measurements: of the same block, with the same seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import finite, geometric_interval


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of the pairs' ratios, its interval, the smallest and the largest.

    There is no interval below 6 pairs, 8 at 99 %.
    """

    value: float
    interval: tuple[float, float] | None
    low: float
    high: float
    pairs: int


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
    return Ratio(float(np.exp(logs.mean())), interval, float(np.exp(logs.min())), float(np.exp(logs.max())), len(logs))
