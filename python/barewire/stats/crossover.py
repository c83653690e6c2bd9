# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From which size on the second of two ways is the cheaper one."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from barewire.stats.intervals import finite


def crossover(sizes: Sequence[int], first: Sequence[float], second: Sequence[float]) -> float:
    """The size up to which `first` is cheaper than `second`; costs above 0, one per size, sizes ascending.

    Of all places where one could change from the first way to the second, the one that costs least in total, each
    size's cost taken relative to the other's: so a single disturbed size decides nothing. Between the two sizes
    around it, the size at which the costs are equal if they change linearly. The smallest size where the first is
    cheaper at none, the largest where it is at all: the truth then lies at or beyond that end.
    ValueError for no sizes, sizes that do not ascend, other numbers of costs, or costs that are not above 0.
    """
    a, b = finite(first), finite(second)
    if not len(sizes) == len(a) == len(b) or any(x >= y for x, y in pairwise(sizes)):
        raise ValueError("need ascending sizes and one cost of either way for each")
    if not ((a > 0).all() and (b > 0).all()):
        raise ValueError("costs are above 0")
    gain = (b - a) / (b + a)
    lost_before = np.concatenate([[0.0], np.cumsum(np.maximum(-gain, 0))])
    lost_after = np.concatenate([np.cumsum(np.maximum(gain, 0)[::-1])[::-1], [0.0]])
    place = int(np.argmin(lost_before + lost_after))
    if place == 0:
        return float(sizes[0])
    if place == len(sizes):
        return float(sizes[-1])
    low, high = sizes[place - 1], sizes[place]
    # The cheapest place has a gain before it and a loss behind it; otherwise one further would be as cheap.
    before, after = b[place - 1] - a[place - 1], b[place] - a[place]
    return float(low + (high - low) * before / (before - after))
