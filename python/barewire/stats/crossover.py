# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The size from which the second of two methods is cheaper."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from barewire.stats.intervals import finite


def crossover(sizes: Sequence[int], first: Sequence[float], second: Sequence[float]) -> float:
    """Return the size up to which `first` is cheaper than `second`; costs above 0, one per size, sizes ascending.

    The position of the change from the first to the second method minimises the total cost, with each size's cost taken
    relative to the other method's, so that single disturbed sizes have little effect. Between the two sizes around it,
    the crossover is where the costs are equal by linear interpolation. The result is the smallest size if the first
    method is never cheaper, and the largest if it always is: the crossover then lies at or beyond that end.
    ValueError for no sizes, sizes that do not ascend, other numbers of costs, or costs that are not above 0.
    """
    a, b = finite(first), finite(second)
    if not len(sizes) == len(a) == len(b) or any(x >= y for x, y in pairwise(sizes)):
        raise ValueError("need ascending sizes and one cost of each method per size")
    if not ((a > 0).all() and (b > 0).all()):
        raise ValueError("costs must be above 0")
    gain = (b - a) / (b + a)
    lost_before = np.concatenate([[0.0], np.cumsum(np.maximum(-gain, 0))])
    lost_after = np.concatenate([np.cumsum(np.maximum(gain, 0)[::-1])[::-1], [0.0]])
    position = int(np.argmin(lost_before + lost_after))
    if position == 0:
        return float(sizes[0])
    if position == len(sizes):
        return float(sizes[-1])
    low, high = sizes[position - 1], sizes[position]
    # The cheapest position has a gain before it and a loss after it; otherwise the next one would be as cheap.
    before, after = b[position - 1] - a[position - 1], b[position] - a[position]
    return float(low + (high - low) * before / (before - after))
