# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics of launches; pure functions. The experimental unit is a launch, never an iteration inside one."""

from barewire.stats.changes import Change, find_changes
from barewire.stats.comparison import Comparison, compare_over_sizes, holm
from barewire.stats.crossover import crossover
from barewire.stats.intervals import CONFIDENCE, LAUNCHES_FOR_INTERVAL, is_precise, mean_interval, median_interval
from barewire.stats.trend import Trend, trend

__all__ = [
    "CONFIDENCE",
    "LAUNCHES_FOR_INTERVAL",
    "Change",
    "Comparison",
    "Trend",
    "compare_over_sizes",
    "crossover",
    "find_changes",
    "holm",
    "is_precise",
    "mean_interval",
    "median_interval",
    "trend",
]
