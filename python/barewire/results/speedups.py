# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Speed-up and efficiency of the kernels, from one run with several numbers of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.results.quantities import KERNEL_TOTAL, has_own_sizes, is_kernel, is_weak
from barewire.results.run import Run, Series
from barewire.stats.comparison import compare_over_sizes
from barewire.stats.confidence import CONFIDENCE, with_interval_names

Interval = tuple[float, float]


@dataclass(frozen=True)
class Speedup:
    """One variant of a kernel on `ranks` ranks, relative to `base_ranks`, the fewest of the run.

    T is the time of the slowest rank. `ratio` is T(base) / T(ranks). If all ranks share one problem (strong scaling)
    that is the speed-up, which is ranks / base_ranks at best; if the problem grows with the ranks (`weak`) it is the
    efficiency, and the speed-up is that of an equal amount of work (Gustafson 1988). Intervals are those of the ratio
    of medians, None below 6 launches (8 at 99 %). `message_bytes` is None if the size follows from the ranks.
    """

    test: str
    subject: str
    variant: str
    message_bytes: int | None
    parameter: str
    parameter_value: float | None
    weak: bool
    ranks: int
    base_ranks: int
    launches: int
    ratio: float
    ratio_interval: Interval | None
    confidence: float = CONFIDENCE

    @property
    def ideal(self) -> float:
        """The speed-up of perfect scaling."""
        return self.ranks / self.base_ranks

    @property
    def speedup(self) -> float:
        """Work in a time, relative to the base."""
        return self.ratio * self._factor

    @property
    def speedup_interval(self) -> Interval | None:
        """Interval of the speed-up."""
        return _scaled(self.ratio_interval, self._factor)

    @property
    def efficiency(self) -> float:
        """The speed-up as a share of the ideal one."""
        return self.speedup / self.ideal

    @property
    def efficiency_interval(self) -> Interval | None:
        """Interval of the efficiency."""
        return _scaled(self.speedup_interval, 1 / self.ideal)

    @property
    def _factor(self) -> float:
        return self.ideal if self.weak else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        names = ("speedup", "speedup_interval", "efficiency", "efficiency_interval")
        plain = {**asdict(self), **{name: getattr(self, name) for name in names}}
        del plain["confidence"]
        return dict(with_interval_names(plain, self.confidence))


def speedups(run: Run) -> tuple[Speedup, ...]:
    """Return the speed-up of each kernel, subject, variant and task on every number of ranks, ascending.

    Tasks of which the run has one number of ranks have none.
    """
    tasks: dict[tuple[Any, ...], dict[int, Series]] = {}
    for each in run.series:
        if is_kernel(each.test) and each.quantity == KERNEL_TOTAL and each.launch_medians:
            size = None if has_own_sizes(each.test) else each.message_bytes
            task = each.test, each.subject, each.variant, size, each.parameter, each.parameter_value
            tasks.setdefault(task, {})[each.ranks] = each
    return tuple(found for task, of_ranks in tasks.items() if len(of_ranks) > 1 for found in _of_task(task, of_ranks))


def _of_task(task: tuple[Any, ...], of_ranks: Mapping[int, Series]) -> Sequence[Speedup]:
    test, subject, variant, size, parameter, value = task
    base_ranks = min(of_ranks)
    base = of_ranks[base_ranks].launch_medians
    found = []
    for ranks, series in sorted(of_ranks.items()):
        pair = (base, series.launch_medians)
        (result,) = compare_over_sizes([pair], lower_is_better=True, confidence=series.confidence)
        found.append(
            Speedup(
                *(test, subject, variant, size, parameter, value, is_weak(test, parameter)),
                ranks=ranks,
                base_ranks=base_ranks,
                launches=min(len(base), len(series.launch_medians)),
                # The base relative to itself has no error.
                ratio=result.ratio,
                ratio_interval=(1.0, 1.0) if ranks == base_ranks else result.ratio_interval,
                confidence=series.confidence,
            )
        )
    return found


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    return None if interval is None else (interval[0] * factor, interval[1] * factor)
