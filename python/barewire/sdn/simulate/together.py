# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Several jobs at once: one that is measured beside another that is repeated, or all measured, in turns if wanted."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from barewire.sdn.coflow import Turns, coflow_of
from barewire.sdn.flow import Pattern
from barewire.sdn.simulate.workload import Job, Transfer, Workload
from barewire.topology import Network


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


class Together:
    """Jobs that begin at once, as one workload that is finished when all are.

    Those of `in_turns` wait for their turn before they send. Jobs withdraw their patterns when they are finished.
    """

    def __init__(self, jobs: Mapping[str, Job], network: Network, in_turns: Collection[str] = ()) -> None:
        """Initialise; `network` is where they send."""
        self._jobs = list(jobs.values())
        self._network = network
        self._in_turns = {number for number, name in enumerate(jobs) if name in in_turns}
        self._turns = Turns()
        # The jobs whose turn it is, since a time; None: to be asked again.
        self._going: tuple[float, frozenset[str]] | None = None
        self._known: list[tuple[Pattern, ...]] = []
        self._announced: tuple[Pattern, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all jobs are finished."""
        return all(job.finished for job in self._jobs)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The sum of the unfinished jobs' current patterns."""
        known = [job.patterns for job in self._jobs if not job.finished]
        if len(known) != len(self._known) or any(new is not old for new, old in zip(known, self._known, strict=True)):
            self._known = known
            volumes: Counter[tuple[str, str]] = Counter()
            for patterns in known:
                volumes.update(patterns[0])
            self._announced = (dict(volumes),)
        return self._announced

    def begin(self) -> list[Transfer]:
        """Begin all."""
        return [transfer for number, job in enumerate(self._jobs) for transfer in _tagged(number, job.begin())]

    def arrived(self, transfer: Transfer, now_s: float) -> list[Transfer]:
        """Forward to the job of this transfer."""
        number, tag = transfer.tag
        begins = _tagged(number, self._jobs[number].arrived(replace(transfer, tag=tag), now_s))
        if self._jobs[number].has_sent:
            self._turns.end(str(number))
            self._going = None
        return begins

    @property
    def has_turns(self) -> bool:
        """Whether any job waits for its turn."""
        return bool(self._in_turns)

    def sends(self, transfer: Transfer, now_s: float) -> bool:
        """Return whether it is the turn of a transfer's job."""
        number, _ = transfer.tag
        if number not in self._in_turns:
            return True
        coflow = coflow_of(self._network, self._jobs[number].patterns[0], self.patterns[0])
        if coflow is None:
            return True
        if self._turns.want(str(number), coflow, now_s):
            self._going = None
        if self._going is None or self._going[0] != now_s:
            self._going = now_s, self._turns.going(now_s)
        return str(number) in self._going[1]


def _tagged(which: int, transfers: Sequence[Transfer]) -> list[Transfer]:
    return [replace(transfer, tag=(which, transfer.tag)) for transfer in transfers]
