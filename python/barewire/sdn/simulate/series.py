# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of an experiment for one strategy: values by seed, with reference and bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean

from barewire.stats.confidence import CONFIDENCE, interval_name
from barewire.stats.intervals import mean_interval


@dataclass(frozen=True)
class Series:
    """One quantity of one strategy at one number of hosts, a value for each seed.

    `reference` and `bound` have the same quantity, seed by seed, on a star of the same hosts (for two jobs at once:
    of the job alone) and as the bound of any routing; None if unknown. `published` is a published mean.
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
    confidence: float = CONFIDENCE

    @property
    def value(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval."""
        return mean_interval(self.values, self.confidence)

    def fraction_of(self, reference: Sequence[float] | None) -> float | None:
        """Geometric mean of the fractions of the reference, seed by seed."""
        if reference is None:
            return None
        ratios = [value / most for value, most in zip(self.values, reference, strict=True)]
        return 1 / geometric_mean(ratios) if self.lower_is_better else geometric_mean(ratios)

    def to_json(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {
            "workload": self.workload,
            "quantity": self.quantity,
            "unit": self.unit,
            "strategy": self.strategy,
            "hosts": self.hosts,
            "mean": self.value,
            interval_name(self.confidence): self.interval,
            "values": self.values,
            "of_reference": self.fraction_of(self.reference),
            "of_bound": self.fraction_of(self.bound),
            "published": self.published,
        }
