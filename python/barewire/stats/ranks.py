# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rank test of Mann and Whitney (Wilcoxon's of two samples), exact for usual numbers of launches and with ties."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from barewire.stats.intervals import finite

# All launches times those of the side with fewer, up to which the test is exact: 50 on each side, or 6 against 800. It
# then takes 0.1 s, with 100 on each side 4 s.
EXACT_MAX = 5000


@dataclass(frozen=True)
class Ranks:
    """U of A: the number of pairs in which A is larger, ties counted by half; two-sided p."""

    u: float
    p: float


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> Ranks:
    """Compare two samples by ranks: over all arrangements of the pooled values, of up to `EXACT_MAX`.

    Beyond it by the normal approximation, corrected for continuity and ties. p is twice the smaller tail.
    """
    from scipy import stats  # imported late, as in `intervals`

    x, y = finite(a), finite(b)
    ranks = stats.rankdata(np.concatenate([x, y]))
    u = float(ranks[: len(x)].sum() - len(x) * (len(x) + 1) / 2)
    if (len(x) + len(y)) * min(len(x), len(y)) > EXACT_MAX:
        return Ranks(u, float(stats.mannwhitneyu(x, y, method="asymptotic").pvalue))
    return Ranks(u, _exact(ranks[: len(x)], ranks[len(x) :]))


def _exact(ranks_a: NDArray[np.float64], ranks_b: NDArray[np.float64]) -> float:
    """Return p from the number of arrangements with each sum of ranks, by dynamic programming."""
    fewer = min(ranks_a, ranks_b, key=len)
    # Ranks of ties are halves.
    all_doubled, observed = np.rint(2 * np.sort(np.concatenate([ranks_a, ranks_b]))).astype(int), round(2 * fewer.sum())
    # [chosen, sum]
    count = np.zeros((len(fewer) + 1, all_doubled[-len(fewer) :].sum() + 1))
    count[0, 0] = 1
    for rank in all_doubled:
        count[1:, rank:] += count[:-1, :-rank]
    share = count[-1] / count[-1].sum()
    return float(min(1.0, 2 * min(share[: observed + 1].sum(), share[observed:].sum())))
