# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ratios of what was measured in pairs: in the same block, on the same seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.comparison import RESAMPLES
from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, finite


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of the pairs' ratios; its 95 % interval, None below 6 pairs; the smallest and the largest."""

    value: float
    ci95: tuple[float, float] | None
    low: float
    high: float
    pairs: int


def paired_ratio(values: Sequence[float], others: Sequence[float], *, seed: int = 0) -> Ratio:
    """Return values by others, pair by pair; the interval is a percentile bootstrap of whole pairs.

    ValueError unless there is at least one pair, as many of either, all above 0.
    """
    above, below = finite(values), finite(others)
    if len(above) != len(below) or not ((above > 0).all() and (below > 0).all()):
        raise ValueError("ratios need as many values as others, all above 0")
    logs = np.log(above / below)
    interval = None
    if len(logs) >= LAUNCHES_FOR_INTERVAL:
        means = np.random.default_rng(seed).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
        interval = float(low), float(high)
    return Ratio(float(np.exp(logs.mean())), interval, float(np.exp(logs.min())), float(np.exp(logs.max())), len(logs))
