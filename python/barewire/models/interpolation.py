# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A measured time as a function of the message size, with all draws of its bootstrap: parametrised LogP's functions.

Between two measured sizes the time is interpolated; beyond the longest one it continues with the slope of the last
three. Arrays have one value per draw, the first of which is the estimate.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from barewire.models.times import Floats, Times, lines

_LAST_SIZES = 3


@dataclass(frozen=True, eq=False)
class Interpolated:
    """Times in µs: `draws[draw, size]`, and their slope beyond the longest size."""

    sizes: tuple[int, ...]
    draws: Floats
    slope: Floats
    launches: int

    @classmethod
    def through(cls, times: Times, generator: np.random.Generator) -> Self:
        """Make a function from measured times."""
        draws = times.draws(generator)
        slope = np.zeros(len(draws))
        if len(times.sizes) > 1:
            slope = lines(times.sizes[-_LAST_SIZES:], draws[:, -_LAST_SIZES:], _weights(draws))[1]
        return cls(times.sizes, draws, np.maximum(slope, 0), times.launches)

    def __call__(self, message_bytes: float) -> Floats:
        """Return the time of one message in µs, for each draw."""
        if message_bytes >= self.sizes[-1]:
            return np.asarray(self.draws[:, -1] + self.slope * (message_bytes - self.sizes[-1]))
        if message_bytes <= self.sizes[0]:
            return self.draws[:, 0]
        above = int(np.searchsorted(self.sizes, message_bytes, side="right"))
        low, high = self.sizes[above - 1], self.sizes[above]
        share = (message_bytes - low) / (high - low)
        return np.asarray(self.draws[:, above - 1] * (1 - share) + self.draws[:, above] * share)

    def covers(self, message_bytes: float) -> bool:
        """Return whether the size lies within the measured ones."""
        return self.sizes[0] <= message_bytes <= self.sizes[-1]


def _weights(draws: Floats) -> Floats:
    """Positive weights for values that may be 0 or less, such as overheads below the noise."""
    last = np.abs(draws[:, -_LAST_SIZES:])
    return np.asarray(np.maximum(last, 1e-3 * last.max(axis=1, keepdims=True) + 1e-12))
