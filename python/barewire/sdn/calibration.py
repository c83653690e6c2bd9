# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The simulator's two parameters from measurements without blocking, and how wrong its predictions then are.

On a pair of hosts, or in a ring on a star, a message takes its overhead and then its bytes at the payload's rate. Both
parameters come from such measurements alone; what was measured on a blocking network is held out, and is what the
predictions are judged by.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


@dataclass(frozen=True)
class Calibration:
    """`efficiency` is the payload's share of the link's rate, `overhead_s` what a message costs besides.

    `worst_residual` is the largest relative error over the measurements that it was fitted to.
    """

    efficiency: float
    overhead_s: float
    worst_residual: float


@dataclass(frozen=True)
class PredictionError:
    """Relative errors, predicted over measured less 1, by case; the mean of their sizes, and the largest."""

    by_case: Mapping[Hashable, float]
    mean: float
    worst: float


def fit(latencies: Sequence[tuple[int, float]], rate_bit_s: float) -> Calibration:
    """Fit both parameters to (message bytes, latency in s): ping-pongs' halves, rings' halves on a star.

    Relative errors are made least, so short messages count as much as long ones; neither parameter is below 0.
    ValueError for fewer than two sizes, values not above 0, or times in which bytes cost nothing.
    """
    sizes = np.array([size for size, _ in latencies], dtype=np.float64)
    times = np.array([time for _, time in latencies], dtype=np.float64)
    if len(set(sizes)) < 2:
        raise ValueError("a calibration needs latencies of at least two message sizes")
    if not (np.isfinite(times).all() and (times > 0).all() and (sizes > 0).all() and rate_bit_s > 0):
        raise ValueError("message sizes, latencies and the rate are finite and above 0; measure again")
    at_rate_s = sizes * 8 / rate_bit_s
    (overhead_s, slowness), _ = nnls(np.column_stack((1 / times, at_rate_s / times)), np.ones(len(times)))
    if not slowness > 0:
        raise ValueError("longer messages take no longer: this measured something else than transfers")
    residuals = (overhead_s + slowness * at_rate_s) / times - 1
    return Calibration(1 / float(slowness), float(overhead_s), float(np.abs(residuals).max()))


def prediction_error(predicted: Mapping[Hashable, float], measured: Mapping[Hashable, float]) -> PredictionError:
    """Compare predictions with measurements of the same cases. ValueError unless both have the same, at least one."""
    if not measured or set(predicted) != set(measured):
        raise ValueError("predictions and measurements must be of the same cases, at least one")
    if not all(value > 0 for value in measured.values()):
        raise ValueError("measured values are above 0")
    errors = {case: predicted[case] / value - 1 for case, value in measured.items()}
    sizes = [abs(error) for error in errors.values()]
    return PredictionError(errors, sum(sizes) / len(sizes), max(sizes))
