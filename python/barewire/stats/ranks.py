# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rank test of Mann and Whitney (Wilcoxon's of two samples), exact for any number of launches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.intervals import finite

EXACT_ARRANGEMENTS_MAX = 20_000  # all splits of 8 + 8 launches (12870) are enumerated, more are sampled


@dataclass(frozen=True)
class Ranks:
    """U of A: the number of pairs in which A is larger, ties counted by half; two-sided p."""

    u: float
    p: float


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> Ranks:
    """Compare two samples by ranks: exact without ties, otherwise over the arrangements of the pooled values."""
    x, y = finite(a), finite(b)
    ties = len(np.unique(np.concatenate([x, y]))) < len(x) + len(y)
    # The seed is fixed: a p value must not differ between two reads of the same run.
    from scipy import stats

    if ties and min(len(x), len(y)) == 1:
        # scipy does not permute a single value: any of the pooled ones could be it.
        distances = np.abs(stats.rankdata(np.concatenate([x, y])) - (len(x) + len(y) + 1) / 2)
        observed = distances[0 if len(x) == 1 else -1]
        u = stats.mannwhitneyu(x, y, method="asymptotic").statistic
        return Ranks(float(u), float(np.mean(distances >= observed)))
    method = stats.PermutationMethod(n_resamples=EXACT_ARRANGEMENTS_MAX, rng=np.random.default_rng(0))
    result = stats.mannwhitneyu(x, y, method=method if ties else "exact")
    return Ranks(float(result.statistic), min(1.0, float(result.pvalue)))
