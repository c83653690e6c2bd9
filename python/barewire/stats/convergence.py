# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How many repetitions a result needs until it converges: launches of a run, and samples of a launch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import PRECISION, finite, is_precise


def launches_to_converge(
    launch_medians: Sequence[float], relative_half_width: float = PRECISION, confidence: float = CONFIDENCE
) -> int | None:
    """Return after how many launches, in their order, the median was precise for the first time; None if never.

    Errors as `is_precise`.
    """
    counts = range(launches_for_interval(confidence), len(launch_medians) + 1)
    return next(
        (count for count in counts if is_precise(launch_medians[:count], relative_half_width, confidence)), None
    )


def samples_to_converge(
    samples: Sequence[float] | NDArray[np.float64], relative_half_width: float = PRECISION
) -> int | None:
    """Return after how many samples, in their order, the median stays within this share of the median of all.

    It makes no assumption about independence, which samples of one launch do not have. None if that takes more than
    half of the samples: with so few left to contradict, it cannot be told. Errors as `is_precise`.
    """
    values = finite(samples)
    if not relative_half_width > 0:
        raise ValueError(f"the relative half width must be above 0, not {relative_half_width}")
    final = float(np.median(values))
    reach = relative_half_width * abs(final)
    counts = np.arange(1, len(values) + 1)
    # The median of the first n lies outside if half of them do, on one side.
    strays = (2 * np.cumsum(values < final - reach) >= counts) | (2 * np.cumsum(values > final + reach) >= counts)
    needed = int(np.flatnonzero(strays)[-1]) + 2 if strays.any() else 1
    return needed if 2 * needed <= len(values) else None
