# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ratios of paired measurements: of the same block, with the same seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.comparison import RESAMPLES
from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, finite


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of the pairs' ratios, its 95 % interval (None below 6 pairs), the smallest and the largest."""

    value: float
    ci95: tuple[float, float] | None
    low: float
    high: float
    pairs: int


def paired_ratio(values: Sequence[float], references: Sequence[float], *, seed: int = 0) -> Ratio:
    """Return the ratios of values to references, pair by pair; the interval is a percentile bootstrap of whole pairs.

    ValueError unless there are equally many of both, at least one, all above 0.
    """
    above, below = finite(values), finite(references)
    if len(above) != len(below) or not ((above > 0).all() and (below > 0).all()):
        raise ValueError("ratios need as many values as references, all above 0")
    logs = np.log(above / below)
    interval = None
    if len(logs) >= LAUNCHES_FOR_INTERVAL:
        means = np.random.default_rng(seed).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
        interval = float(low), float(high)
    return Ratio(float(np.exp(logs.mean())), interval, float(np.exp(logs.min())), float(np.exp(logs.max())), len(logs))
