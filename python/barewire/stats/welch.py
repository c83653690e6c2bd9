# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Welch's t test of two means, with the numbers that papers print."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.confidence import CONFIDENCE
from barewire.stats.intervals import finite

# Values that agree to this share differ by rounding only.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Welch:
    """mean(A) - mean(B), its standard error and t interval, in the unit of the values; t, degrees of freedom, p."""

    difference: float
    error: float
    interval: tuple[float, float]
    t: float
    df: float
    p: float


def welch(a: Sequence[float], b: Sequence[float], *, confidence: float = CONFIDENCE) -> Welch | None:
    """Compare two means without assuming equal variances.

    None if a side has one value, or if neither has any spread: then nothing tells how certain a difference is.
    ValueError for no values or values that are not finite. Source: Welch 1947.
    """
    x, y = finite(a), finite(b)
    if min(len(x), len(y)) < 2 or all(np.ptp(side) <= _ROUNDING * np.abs(side).max() for side in (x, y)):
        return None
    from scipy import stats  # imported late, as in `intervals`

    with warnings.catch_warnings():
        # Launches that agree to the last digit have no spread.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        result = stats.ttest_ind(x, y, equal_var=False)
        interval = result.confidence_interval(confidence)
    return Welch(
        difference=float(x.mean() - y.mean()),
        error=float(np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))),
        interval=(float(interval.low), float(interval.high)),
        t=float(result.statistic),
        df=float(result.df),
        p=float(result.pvalue),
    )


def equivalence_p(result: Welch, margin: float) -> float:
    """Return p of two one-sided tests (TOST) of "the means differ by `margin` or more", in the unit of the values.

    The smaller it is, the surer it is that the difference is within ±`margin`. ValueError for a margin that is not
    above 0. Source: Schuirmann 1987.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, not {margin}")
    from scipy import stats

    above, below = (result.difference + margin) / result.error, (result.difference - margin) / result.error
    return float(max(stats.t.sf(above, result.df), stats.t.cdf(below, result.df)))
