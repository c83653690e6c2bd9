# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hockney's model of a message's time: t(s) = α + s / b, by least squares with relative errors.

Source: Hockney 1994. α is the time of an empty message, b the rate of a long one, n½ = α·b the size at which half of
that rate is reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barewire.models.times import CannotSay, Estimate, Floats, Times, are_ascending, estimate, lines

# Two points always fit a straight line.
SIZES_MIN = 3
# A larger residual contradicts a single line.
GOOD_RESIDUAL = 0.1


@dataclass(frozen=True)
class Residual:
    """Measured time / modelled time − 1, of one size."""

    relative: float
    message_bytes: int


@dataclass(frozen=True)
class Hockney:
    """The fitted line; a parameter is None if the times do not determine it, and `unsaid` says why.

    `residuals`: of each size; `worst` is the one largest in magnitude.
    """

    alpha_us: Estimate | None
    us_per_byte: Estimate | None
    rate_mbit_s: Estimate | None
    half_bytes: Estimate | None
    residuals: tuple[Residual, ...]
    unsaid: tuple[str, ...]

    @property
    def worst(self) -> Residual:
        """The largest residual."""
        return worst_of(self.residuals)

    @property
    def is_good(self) -> bool:
        """Whether one line describes the times."""
        return abs(self.worst.relative) <= GOOD_RESIDUAL


def fit_hockney(times: Times) -> Hockney:
    """Fit one line to all sizes; intervals by bootstrap over launches. CannotSay below three sizes."""
    if len(times.sizes) < SIZES_MIN or not are_ascending(times.sizes):
        raise CannotSay(
            f"a line needs {SIZES_MIN} sizes or more, and {len(times.sizes)} "
            f"{'was' if len(times.sizes) == 1 else 'were'} measured; measure with more --sizes"
        )
    draws = times.draws(np.random.default_rng(0))
    alpha, per_byte = lines(times.sizes, draws)
    unsaid = []
    latency, slope = (estimate(draw, times.launches, times.confidence) for draw in (alpha, per_byte))
    if not latency.surely_above_zero:
        unsaid.append("α cannot be told apart from 0; measure shorter messages")
    # A constant's slope differs from 0 by rounding.
    grows = slope.value * (times.sizes[-1] - times.sizes[0]) > 1e-9 * float(times.medians.max())
    has_rate = grows and slope.surely_above_zero
    if not has_rate:
        unsaid.append("the times do not grow with the size, so the rate is unknown; measure longer messages")
    both = has_rate and latency.surely_above_zero
    return Hockney(
        alpha_us=latency if latency.surely_above_zero else None,
        us_per_byte=slope if has_rate else None,
        rate_mbit_s=estimate(8 / per_byte, times.launches, times.confidence) if has_rate else None,
        half_bytes=estimate(alpha / per_byte, times.launches, times.confidence) if both else None,
        residuals=residuals(times.sizes, times.medians, alpha[0] + per_byte[0] * np.asarray(times.sizes)),
        unsaid=tuple(unsaid),
    )


def residuals(sizes: Sequence[int], measured: Floats, modelled: Floats) -> tuple[Residual, ...]:
    """Return the residual of each size."""
    return tuple(
        Residual(float(found / expected - 1), size)
        for size, found, expected in zip(sizes, measured, modelled, strict=True)
    )


def worst_of(all_residuals: Sequence[Residual]) -> Residual:
    """Return the residual that is largest in magnitude."""
    return max(all_residuals, key=lambda each: abs(each.relative))
