# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The simulator's two parameters, fitted to measurements without blocking.

On a pair of hosts, or in a ring on a star, a message takes its overhead plus its size divided by the payload's rate.
Both parameters are fitted only to such measurements; those on blocking networks are held out to evaluate predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Calibration:
    """`efficiency` is the payload's share of the link's rate, `overhead_s` the additional time of a message.

    `worst_residual` is the largest relative error over the fitted measurements.
    """

    efficiency: float
    overhead_s: float
    worst_residual: float


def fit(latencies: Sequence[tuple[int, float]], rate_bit_s: float) -> Calibration:
    """Fit both parameters to (message bytes, latency in s): ping-pongs' halves, rings' halves on a star.

    Minimises relative errors, so that short and long messages have equal weight; both parameters are at least 0.
    ValueError for fewer than two sizes, values not above 0, or times that do not grow with the size.
    """
    sizes = np.array([size for size, _ in latencies], dtype=np.float64)
    times = np.array([time for _, time in latencies], dtype=np.float64)
    if len(set(sizes)) < 2:
        raise ValueError("a calibration needs latencies of at least two message sizes")
    if not (np.isfinite(times).all() and (times > 0).all() and (sizes > 0).all() and rate_bit_s > 0):
        raise ValueError("message sizes, latencies and the rate are finite and above 0; measure again")
    at_rate_s = sizes * 8 / rate_bit_s
    from scipy.optimize import nnls  # imported late, as in `barewire.stats.intervals`

    (overhead_s, slowness), _ = nnls(np.column_stack((1 / times, at_rate_s / times)), np.ones(len(times)))
    if not slowness > 0:
        raise ValueError("longer messages take no longer, so these are not times of transfers")
    residuals = (overhead_s + slowness * at_rate_s) / times - 1
    return Calibration(1 / float(slowness), float(overhead_s), float(np.abs(residuals).max()))
