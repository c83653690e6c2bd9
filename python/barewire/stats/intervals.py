# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Confidence intervals over launches, and when they are narrow enough."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval

# Half width of a median's interval, relative to the median, at which it is precise.
PRECISION = 0.02


def median_interval(launch_values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the interval of the median from order statistics, exact for any distribution; unit of the values.

    `launch_values`: one number per launch. None below 6 launches (8 at 99 %), where no such interval exists.
    ValueError for no values, values that are not finite, or a confidence outside 0.5 … 0.999. Source: Conover,
    Practical Nonparametric Statistics.
    """
    values = finite(launch_values)
    if len(values) < launches_for_interval(confidence):
        return None
    low, high = _ranks_of_median(len(values), confidence)
    values = np.sort(values)
    return float(values[low]), float(values[high])


@cache
def _ranks_of_median(count: int, confidence: float) -> tuple[int, int]:
    """Return the ranks of the ends of a median's interval, from 0; they do not depend on the values."""
    from scipy import stats  # imported late: it takes half a second that most commands need not wait for

    # Those of scipy.stats.quantile_test, which has none where the whole range has exactly this confidence.
    low = max(int(stats.binom.ppf((1 - confidence) / 2, count, 0.5)) - 1, 0)
    return low, count - 1 - low


def mean_interval(launch_values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the interval of the mean by Student's t; None below 2 launches. Errors as `median_interval`."""
    values = finite(launch_values)
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = _students_quantile(len(values) - 1, confidence) * error
    return mean - half, mean + half


@cache
def _students_quantile(degrees: int, confidence: float) -> float:
    """Return how many standard errors the interval has on either side of a mean; computing it takes a millisecond."""
    launches_for_interval(confidence)
    from scipy import stats

    return float(stats.t.ppf((1 + confidence) / 2, degrees))


def geometric_interval(
    launch_values: Sequence[float] | NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the interval of the geometric mean of values above 0: Student's, of their logarithms.

    Both ends are above 0, as times, rates and ratios are. None below 6 launches (8 at 99 %). Errors as
    `median_interval`, and for values that are not above 0.
    """
    values = finite(launch_values)
    if not (values > 0).all():
        raise ValueError("a geometric mean needs values above 0")
    if len(values) < launches_for_interval(confidence):
        return None
    interval = mean_interval([float(value) for value in np.log(values)], confidence)
    assert interval is not None
    return math.exp(interval[0]), math.exp(interval[1])


def is_precise(
    launch_medians: Sequence[float], relative_half_width: float = PRECISION, confidence: float = CONFIDENCE
) -> bool:
    """Return whether there are enough launches: half the median's interval is at most this share of the median.

    False where there is no interval. ValueError for no values, values that are not finite, or a width that is not above
    0.
    """
    if not relative_half_width > 0:
        raise ValueError(f"the relative half width must be above 0, not {relative_half_width}")
    interval = median_interval(launch_medians, confidence)
    if interval is None:
        return False
    return (interval[1] - interval[0]) / 2 <= relative_half_width * abs(float(np.median(launch_medians)))


def resampled_medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each resample, over the second axis, as numpy.median, which takes three times as long."""
    ordered, count = np.sort(values, axis=1), values.shape[1]
    middle = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return np.where(np.isnan(ordered[:, -1]), np.nan, middle)  # what is not a number is sorted to the end


def finite(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `values` as an array of shape (n,), n ≥ 1; ValueError if empty or not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError("need at least one value per launch; measure again with more launches")
    if not all(math.isfinite(value) for value in array):
        raise ValueError("a launch's value is not a finite number; leave that launch out")
    return array
