# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two jobs at once: one is measured, the other is repeated until the measured job is finished."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import Transfer, Workload


class Concurrent:
    """Both jobs as one workload. `beside` creates the next other job from the previous one (None at first)."""

    def __init__(self, measured: Workload, beside: Callable[[Workload | None], Workload]) -> None:
        """Initialise; both jobs begin at once."""
        self._measured = measured
        self._beside = beside
        self._other = beside(None)
        self._known: tuple[tuple[Pattern, ...], tuple[Pattern, ...]] | None = None
        self._announced: tuple[Pattern, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the measured job is finished."""
        return self._measured.finished

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The sums of both jobs' patterns: current and next, as far as both have them."""
        patterns = (self._measured.patterns, self._other.patterns)
        if self._known is None or patterns[0] is not self._known[0] or patterns[1] is not self._known[1]:
            self._known = patterns
            self._announced = tuple(
                dict(Counter(first) + Counter(second)) for first, second in zip(*patterns, strict=False)
            )
        return self._announced

    def begin(self) -> list[Transfer]:
        """Begin both."""
        return [*_tagged(0, self._measured.begin()), *_tagged(1, self._other.begin())]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Forward to the job of this transfer."""
        which, tag = transfer.tag
        job = self._other if which else self._measured
        begins = _tagged(which, job.arrived(replace(transfer, tag=tag), now_s))
        if which and self._other.finished:
            self._other = self._beside(self._other)
            begins += _tagged(1, self._other.begin())
        return begins


def _tagged(which: int, transfers: Sequence[Transfer]) -> list[Transfer]:
    return [replace(transfer, tag=(which, transfer.tag)) for transfer in transfers]
