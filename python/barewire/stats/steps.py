# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What each of several layers adds to the layer below: differences of medians, with intervals over rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from barewire.stats.comparison import RESAMPLES
from barewire.stats.confidence import CONFIDENCE, launches_for_interval
from barewire.stats.intervals import finite, resampled_medians

Interval = tuple[float, float]


@dataclass(frozen=True)
class Step:
    """One layer: its median, and the difference to the median of the layer below; all in one unit.

    `added` is below 0 if the upper layer is faster; for the lowest layer it is its `total`. The intervals are None
    below 6 rounds (8 at 99 %).
    """

    total: float
    added: float
    total_interval: Interval | None
    added_interval: Interval | None
    rounds: int

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval of `added` excludes 0; otherwise its cost is too small to be seen."""
        return self.added_interval is not None and not self.added_interval[0] <= 0 <= self.added_interval[1]


def steps(
    values: Mapping[str, Sequence[float]],
    below: Mapping[str, str | None],
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> dict[str, Step]:
    """Return each layer's step by its name; `below` names the layer under it, None for the lowest.

    `values`: per layer one number per round, in the order of the rounds; rounds that not all layers have are left out
    (the last ones of an interrupted run). The interval of a difference is a percentile bootstrap of whole rounds: a
    disturbance of the machine affects all layers of a round, and is no difference between them. All layers use the same
    resamples, so that their intervals are comparable.
    ValueError for no values, values that are not finite, or a layer above one that is missing.
    """
    unknown = [name for name in values if below.get(name) is not None and below[name] not in values]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: the layer below was not measured")
    arrays = {name: finite(each) for name, each in values.items()}
    rounds = min(len(each) for each in arrays.values()) if arrays else 0
    chosen = np.random.default_rng(seed).integers(0, max(rounds, 1), (RESAMPLES, rounds))
    layer_steps = {}
    for name, array in arrays.items():
        whole = array[:rounds]
        base_name = below.get(name)
        base = np.zeros(rounds) if base_name is None else arrays[base_name][:rounds]
        draws = resampled_medians(whole[chosen])
        layer_steps[name] = Step(
            total=float(np.median(whole)),
            added=float(np.median(whole) - np.median(base)),
            total_interval=_interval(draws, rounds, confidence),
            added_interval=_interval(draws - resampled_medians(base[chosen]), rounds, confidence),
            rounds=rounds,
        )
    return layer_steps


def _interval(draws: np.typing.NDArray[np.float64], rounds: int, confidence: float) -> Interval | None:
    if rounds < launches_for_interval(confidence):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
