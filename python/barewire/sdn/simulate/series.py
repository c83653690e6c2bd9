# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an experiment says of one strategy: values by seed, and what they could have been."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean

from barewire.stats.intervals import mean_interval


@dataclass(frozen=True)
class Series:
    """One quantity of one strategy at one number of hosts, a value for each seed.

    `reference` and `bound` have the same quantity, seed by seed, on a star of the same hosts (for two jobs at once:
    of the job alone) and as no routing can beat it; None where there is none. `published` is a mean of others.
    """

    workload: str
    quantity: str
    unit: str
    strategy: str
    hosts: int
    values: tuple[float, ...]
    reference: tuple[float, ...] | None = None
    bound: tuple[float, ...] | None = None
    published: float | None = None
    lower_is_better: bool = False

    @property
    def value(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval."""
        return mean_interval(self.values)

    def fraction_of(self, other: Sequence[float] | None) -> float | None:
        """Geometric mean of what was reached of the other, seed by seed; 1 is all of it."""
        if other is None:
            return None
        ratios = [value / most for value, most in zip(self.values, other, strict=True)]
        return 1 / geometric_mean(ratios) if self.lower_is_better else geometric_mean(ratios)

    def to_json(self) -> dict[str, object]:
        """Return it all as plain values."""
        return {
            "workload": self.workload,
            "quantity": self.quantity,
            "unit": self.unit,
            "strategy": self.strategy,
            "hosts": self.hosts,
            "mean": self.value,
            "ci95": self.interval,
            "values": self.values,
            "of_reference": self.fraction_of(self.reference),
            "of_bound": self.fraction_of(self.bound),
            "published": self.published,
        }
