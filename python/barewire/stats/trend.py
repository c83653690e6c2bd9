# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Drift: whether the values of successive launches rise or fall."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.intervals import finite

LAUNCHES_FOR_TREND = 4  # with three, no order is less likely than one in three


@dataclass(frozen=True)
class Trend:
    """Kendall's tau of values and order, its two-sided p, and the ratio of the last to the first value."""

    tau: float
    p: float
    change: float


def trend(values: Sequence[float]) -> Trend | None:
    """Test values above 0, in the order of their launches, for a monotonic trend (Mann 1945, Kendall 1948).

    `change` follows the line through the logarithms with the median of all slopes (Sen 1968). None below 4 values, and
    for equal ones. ValueError for no values, or values that are not finite or not above 0.
    """
    array = finite(values)
    if not (array > 0).all():
        raise ValueError("a trend needs values above 0")
    if len(array) < LAUNCHES_FOR_TREND or np.ptp(array) == 0:
        return None
    from scipy import stats  # imported late, as in `intervals`

    order = np.arange(len(array))
    test = stats.kendalltau(order, array)
    slope = stats.theilslopes(np.log(array), order).slope
    return Trend(float(test.statistic), float(test.pvalue), float(np.exp(slope * order[-1])))
