# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plans the message sizes of each round of a refined run, for each test, from its launches so far."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from barewire.errors import WrongUse
from barewire.results.quantities import is_detail, message_time_us
from barewire.results.run import Place, Row, Series
from barewire.stats.intervals import is_precise
from barewire.stats.refinement import LAUNCHES_TO_JUDGE, Measured, Refinement, next_sizes, undecided

_LISTED_MAX = 4

_CurveKey = tuple[Place, str, Row]


class SizePlanner:
    """Chooses sizes from the launches' medians. The subjects of a test get the same sizes, in another order each."""

    def __init__(
        self, refinement: Refinement, launches_min: int, launches_max: int, precision: float, confidence: float
    ) -> None:
        """Start without measurements."""
        self._refinement, self._precision, self._confidence = refinement, precision, confidence
        self._launches_min, self._launches_max = launches_min, launches_max
        # By test.
        self._grids: dict[str, Sequence[int]] = {}
        self._rounds: defaultdict[str, Counter[int]] = defaultdict(Counter)
        # By test and curve, then by size and round.
        self._medians: defaultdict[str, dict[_CurveKey, dict[int, dict[int, float]]]] = defaultdict(dict)
        self._times: defaultdict[str, dict[_CurveKey, dict[int, dict[int, float]]]] = defaultdict(dict)

    def record(self, round_number: int, series: Series) -> None:
        """Add a launch's result."""
        if series.median is None:
            return
        key = series.place, series.subject, series.row._replace(message_bytes=0)
        time_us = message_time_us(series.median, series.unit, series.message_bytes)
        values = [(self._medians, series.median)]
        if time_us is not None and not is_detail(series.test, series.quantity):
            values.append((self._times, time_us))
        for curves, value in values:
            curves[series.test].setdefault(key, {}).setdefault(series.message_bytes, {})[round_number] = value

    def assign(self, orders: Sequence[Any]) -> list[Any]:
        """Return the next round's orders with their sizes; without those of tests that need no further round.

        The sizes of each launch are shuffled, so that what changes during a launch is not taken for an effect of size.
        """
        for order in orders:
            self._grids.setdefault(order.test, order.sizes)
        sizes = {test: self._next_sizes(test) for test in dict.fromkeys(order.test for order in orders)}
        for test, chosen in sizes.items():
            self._rounds[test].update(chosen)
        return [
            replace(order, sizes=tuple(random.Random(order.seed).sample(sizes[order.test], len(sizes[order.test]))))
            for order in orders
            if sizes[order.test]
        ]

    def warnings(self) -> list[str]:
        """Return a sentence for each test whose refinement is incomplete."""
        sentences = []
        for test in self._grids:
            intervals = undecided(self._measured(test), self._refinement)
            if intervals:
                listed = ", ".join(f"{each.low} to {each.high}" for each in intervals[:_LISTED_MAX])
                more = f" and {len(intervals) - _LISTED_MAX} more" if len(intervals) > _LISTED_MAX else ""
                sentences.append(
                    f"{test}: not decided whether interpolation holds within {self._refinement.threshold:.1%} "
                    f"between these sizes, in bytes: {listed}{more}"
                )
        return sentences

    def _next_sizes(self, test: str) -> tuple[int, ...]:
        return next_sizes(
            self._measured(test), self._refinement, launches_min=self._launches_min, launches_max=self._launches_max
        )

    def _measured(self, test: str) -> Measured:
        results = self._medians[test].values()
        precise = {
            size
            for size in self._rounds[test]
            if all(
                is_precise(list(of[size].values()), self._precision, self._confidence) for of in results if size in of
            )
        }
        return Measured(self._grids[test], self._rounds[test], precise, list(self._times[test].values()))


def check_refinement(refinement: Refinement | None, sizes: Sequence[int] | None, launches_max: int) -> None:
    """Raise WrongUse if there is nothing to refine in these sizes, or too few launches to judge."""
    if refinement is None:
        return
    if sizes is None or len(sizes) < 2:
        raise WrongUse("--refine needs a range of message sizes: --sizes 1..64KiB")
    if max(high - low for low, high in pairwise(sizes)) <= refinement.smallest_bytes:
        raise WrongUse(
            f"no interval between the message sizes is larger than --refine-smallest {refinement.smallest_bytes}: "
            "give a wider range, or a smaller number"
        )
    if launches_max < LAUNCHES_TO_JUDGE:
        raise WrongUse(f"--refine needs {LAUNCHES_TO_JUDGE} launches of each size or more: --launches 6..12")
