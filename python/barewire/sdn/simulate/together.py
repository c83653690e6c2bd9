# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two jobs at once: one is measured, the other runs beside it, again and again, until the first is done."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import Transfer, Workload


class Together:
    """Both as one workload. `beside` makes the other job anew each time, from the one before it (None at first)."""

    def __init__(self, measured: Workload, beside: Callable[[Workload | None], Workload]) -> None:
        """Both begin at once."""
        self._measured = measured
        self._beside = beside
        self._other = beside(None)
        self._known: tuple[tuple[Pattern, ...], tuple[Pattern, ...]] | None = None
        self._announced: tuple[Pattern, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the measured one is done."""
        return self._measured.finished

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The sums of both jobs' patterns: now, next, as far as both say."""
        both = (self._measured.patterns, self._other.patterns)
        if self._known is None or both[0] is not self._known[0] or both[1] is not self._known[1]:
            self._known = both
            self._announced = tuple(dict(Counter(one) + Counter(other)) for one, other in zip(*both, strict=False))
        return self._announced

    def begin(self) -> list[Transfer]:
        """Begin both."""
        return [*_tagged(0, self._measured.begin()), *_tagged(1, self._other.begin())]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Tell the job that it belongs to."""
        which, tag = transfer.tag
        job = self._other if which else self._measured
        begins = _tagged(which, job.arrived(replace(transfer, tag=tag), now_s))
        if which and self._other.finished:
            self._other = self._beside(self._other)
            begins += _tagged(1, self._other.begin())
        return begins


def _tagged(which: int, transfers: Sequence[Transfer]) -> list[Transfer]:
    return [replace(transfer, tag=(which, transfer.tag)) for transfer in transfers]
