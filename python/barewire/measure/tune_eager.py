# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The eager limit: the longest message that is faster eager than by rendezvous, whether expected or not.

In a ping-pong the receive is posted before the message arrives, so eager bytes are placed directly, and only the
rendezvous' round trip differs. In a stream eager messages mostly arrive unexpected and are copied once more, while
the request of one rendezvous overlaps the data of another. A limit must hold for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

import numpy as np

from barewire.measure.launch import Effort
from barewire.measure.sites import Site
from barewire.measure.tune_trials import Bench, Cell, Cells, Values
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.crossover import crossover
from barewire.stats.intervals import median_interval

EAGER_BYTES = "eager_bytes"
_KIB = 1 << 10
# From the smallest size above one frame to the largest that a receiver can buffer for many peers.
SIZES = tuple(n * _KIB for n in (2, 4, 8, 16, 32, 64, 128, 256))
_TESTS = ("pingpong", "stream")
# Limits are multiples of a page.
_ROUND_TO = 4 * _KIB


@dataclass(frozen=True)
class Crossing:
    """The crossover of one test: eager is faster up to `bytes`; `interval` over the launches, None if they are too few.

    At an end of the measured range the crossover may be anywhere beyond it.
    """

    test: str
    bytes: float
    interval: tuple[float, float] | None

    @property
    def limit(self) -> int:
        """The limit: rounded down to whole pages, at least one."""
        return max(_ROUND_TO, floor(self.bytes / _ROUND_TO) * _ROUND_TO)


def eager_bench(site: Site, effort: Effort, launches: int, confidence: float) -> Bench:
    """Return the bench on which both protocols are measured."""
    return Bench(site, "messages", tuple((test, SIZES) for test in _TESTS), effort, launches, confidence)


def eager_variants() -> tuple[Values, Values]:
    """Return the tunings with which all sizes are eager, and all use a rendezvous."""
    return {EAGER_BYTES: SIZES[-1]}, {EAGER_BYTES: 0}


def crossing_of(
    test: str,
    eager: Mapping[Cell, list[float]],
    rendezvous: Mapping[Cell, list[float]],
    confidence: float = CONFIDENCE,
) -> Crossing:
    """Return the median of the crossovers of all rounds; launches of the same round are compared."""
    rounds = min(len(medians[test, size]) for medians in (eager, rendezvous) for size in SIZES)
    crossovers = [
        crossover(SIZES, [eager[test, size][n] for size in SIZES], [rendezvous[test, size][n] for size in SIZES])
        for n in range(rounds)
    ]
    return Crossing(test, float(np.median(crossovers)), median_interval(crossovers, confidence))


def eager_cells(default: int, proposed: int) -> Cells:
    """Return the cells where the two limits differ: sizes above the lower up to the higher; none if equal."""
    low, high = sorted((default, proposed))
    sizes = tuple(sorted({*(size for size in SIZES if low < size <= high), high})) if low < high else ()
    return tuple((test, sizes) for test in _TESTS) if sizes else ()
