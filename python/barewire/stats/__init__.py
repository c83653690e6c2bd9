# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics of launches; pure functions. The experimental unit is a launch, never an iteration inside one."""

from barewire.stats.changes import Change, find_changes
from barewire.stats.comparison import Comparison, compare_over_sizes, holm
from barewire.stats.convergence import launches_to_converge, samples_to_converge
from barewire.stats.crossover import crossover
from barewire.stats.intervals import (
    CONFIDENCE,
    LAUNCHES_FOR_INTERVAL,
    PRECISION,
    geometric_interval,
    is_precise,
    mean_interval,
    median_interval,
)
from barewire.stats.refinement import Refinement
from barewire.stats.trend import Trend, trend

__all__ = [
    "CONFIDENCE",
    "LAUNCHES_FOR_INTERVAL",
    "PRECISION",
    "Change",
    "Comparison",
    "Refinement",
    "Trend",
    "compare_over_sizes",
    "crossover",
    "find_changes",
    "geometric_interval",
    "holm",
    "is_precise",
    "launches_to_converge",
    "mean_interval",
    "median_interval",
    "samples_to_converge",
    "trend",
]
