# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics of launches; pure functions. The experimental unit is a launch, never an iteration inside one."""

from barewire.stats.comparison import Comparison, compare_over_sizes, holm
from barewire.stats.crossover import crossover
from barewire.stats.intervals import LAUNCHES_FOR_INTERVAL, is_precise, mean_interval, median_interval

__all__ = [
    "LAUNCHES_FOR_INTERVAL",
    "Comparison",
    "compare_over_sizes",
    "crossover",
    "holm",
    "is_precise",
    "mean_interval",
    "median_interval",
]
