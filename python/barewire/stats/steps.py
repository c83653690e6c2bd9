# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What each of several layers adds to the one that it stands on: differences of medians, with intervals over rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.comparison import RESAMPLES
from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, finite

Interval = tuple[float, float]


@dataclass(frozen=True)
class Step:
    """One layer: its own median, and what that is more than the median of the layer below; all in one unit.

    `added` is below 0 where the upper layer is the faster one; of a layer that stands on nothing it is its `total`.
    The intervals are None below 6 rounds.
    """

    total: float
    added: float
    total_ci95: Interval | None
    added_ci95: Interval | None
    rounds: int

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval of what it adds leaves out 0: else what it costs is less than can be seen."""
        return self.added_ci95 is not None and not self.added_ci95[0] <= 0 <= self.added_ci95[1]


def steps(values: Mapping[str, Sequence[float]], below: Mapping[str, str | None], *, seed: int = 0) -> dict[str, Step]:
    """What each layer adds, by its name; `below` names what it stands on, None for nothing.

    `values`: per layer one number per round, in the order of the rounds; rounds that not all layers have are left out
    (they are the last of a run that broke off). The interval of a difference is the percentile bootstrap of whole
    rounds: a round that the machine disturbed did that to all its layers, and such a disturbance is no difference
    between them. The same resamples serve all layers, so intervals of one picture belong together.
    ValueError for no values, values that are not finite, or a layer that stands on none of these.
    """
    strangers = [name for name in values if below.get(name) is not None and below[name] not in values]
    if strangers:
        raise ValueError(f"{', '.join(strangers)}: what this stands on was not measured")
    arrays = {name: finite(one) for name, one in values.items()}
    rounds = min(len(one) for one in arrays.values()) if arrays else 0
    chosen = np.random.default_rng(seed).integers(0, max(rounds, 1), (RESAMPLES, rounds))
    found = {}
    for name, array in arrays.items():
        whole = array[:rounds]
        under = below.get(name)
        base = np.zeros(rounds) if under is None else arrays[under][:rounds]
        draws = np.median(whole[chosen], axis=1)
        found[name] = Step(
            total=float(np.median(whole)),
            added=float(np.median(whole) - np.median(base)),
            total_ci95=_interval(draws, rounds),
            added_ci95=_interval(draws - np.median(base[chosen], axis=1), rounds),
            rounds=rounds,
        )
    return found


def _interval(draws: np.typing.NDArray[np.float64], rounds: int) -> Interval | None:
    if rounds < LAUNCHES_FOR_INTERVAL:
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
