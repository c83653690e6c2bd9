# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The eager limit: the longest message that is faster sent at once than announced first, whether it is awaited or not.

In a ping-pong its receive is posted before the message comes, so that eager bytes go where they belong and only the
round trip of the announcement differs. In a stream they mostly come first, and are copied once more; there the
announcement of one overlaps the bytes of another. A limit must hold for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

import numpy as np

from barewire.measure.launch import Effort
from barewire.measure.sites import Site
from barewire.measure.tune_trials import Bench, Cell, Cells, Values
from barewire.stats import crossover, median_interval

EAGER_BYTES = "eager_bytes"
_KIB = 1 << 10
# From the first that no single frame holds, up to what a receiver can keep of many peers.
SIZES = tuple(n * _KIB for n in (2, 4, 8, 16, 32, 64, 128, 256))
_TESTS = ("pingpong", "stream")
# A limit is a multiple of a page.
_ROUND_TO = 4 * _KIB


@dataclass(frozen=True)
class Crossing:
    """Of one test: up to so many bytes eager is faster; `ci95` over the launches, None below 6.

    An end of the measured sizes stands for all beyond it.
    """

    test: str
    bytes: float
    ci95: tuple[float, float] | None

    @property
    def limit(self) -> int:
        """As a limit: rounded down to whole pages, at least one."""
        return max(_ROUND_TO, floor(self.bytes / _ROUND_TO) * _ROUND_TO)


def eager_bench(site: Site, effort: Effort, launches: int) -> Bench:
    """What both ways are measured on."""
    return Bench(site, "messages", tuple((test, SIZES) for test in _TESTS), effort, launches)


def eager_variants() -> tuple[Values, Values]:
    """All sizes eagerly; all announced."""
    return {EAGER_BYTES: SIZES[-1]}, {EAGER_BYTES: 0}


def crossing_of(test: str, eagerly: Mapping[Cell, list[float]], announced: Mapping[Cell, list[float]]) -> Crossing:
    """The median of the rounds' own crossovers: launches of one round are compared with each other."""
    rounds = min(len(one[test, size]) for one in (eagerly, announced) for size in SIZES)
    found = [
        crossover(SIZES, [eagerly[test, size][n] for size in SIZES], [announced[test, size][n] for size in SIZES])
        for n in range(rounds)
    ]
    return Crossing(test, float(np.median(found)), median_interval(found))


def eager_cells(default: int, proposed: int) -> Cells:
    """Where the two limits differ: sizes above the lower one, up to the higher; none where they do not."""
    low, high = sorted((default, proposed))
    sizes = tuple(sorted({*(size for size in SIZES if low < size <= high), high})) if low < high else ()
    return tuple((test, sizes) for test in _TESTS) if sizes else ()
