# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated time: transfers start, share links max-min fairly, and finish; rates are constant between events.

The next event is the earliest of: a transfer finishes, a transfer starts, statistics are due, a strategy is due.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from math import inf

import numpy as np

from barewire.sdn.fairness import Rates, max_min, weights_of
from barewire.sdn.flow import Flow, FlowKey, Pattern
from barewire.sdn.simulate.control import STATISTICS_S, Control, Policy
from barewire.sdn.simulate.workload import Connection, Transfer, Workload
from barewire.topology import Network

# A transfer with fewer bytes left is finished: above rounding errors, and below any message size.
_NOTHING_BYTES = 1e-3
# Numbers kept of shared rates: at most so many sets of so many bytes in all.
_REMEMBERED, _REMEMBERED_NUMBERS = 4096, 20_000_000


class Engine:
    """One network with its controller and one workload."""

    def __init__(
        self,
        network: Network,
        policy: Policy,
        *,
        efficiency: float = 1.0,
        statistics_s: float = STATISTICS_S,
        announced: bool = True,
    ):
        """`efficiency` is the share of a link's rate that payload gets; `announced`: strategies know the patterns."""
        self._announced = announced
        self.control = Control(network, policy, statistics_s)
        self.now_s = 0.0
        self._capacity = self.control.capacity * efficiency
        self._numbers = count()
        self._waiting: list[tuple[float, int, Transfer]] = []
        # The transfers under way, and what each has left, now and at the last statistics.
        self._active: list[Transfer] = []
        self._left_bytes: Rates = np.zeros(0)
        self._counted_bytes: Rates = np.zeros(0)
        self._rates: Rates = np.zeros(0)
        self._link_rates: Rates = np.zeros(len(self._capacity))
        self._sent: Rates = np.zeros(len(self._capacity))
        self._flow_bytes: defaultdict[FlowKey, float] = defaultdict(float)
        self._remembered: dict[tuple[object, ...], tuple[Rates, Rates]] = {}
        self._changed = True
        self._sends: Callable[[Transfer, float], bool] | None = None
        self._workload: Workload | None = None

    def run(
        self,
        workload: Workload,
        until_s: float = inf,
        sends: Callable[[Transfer, float], bool] | None = None,
    ) -> None:
        """Simulate until the workload has finished, or until `until_s`.

        `sends` is asked for each transfer when any begins or ends; those that it refuses pause until then.
        """
        self._sends, self._workload = sends, workload
        patterns = self._patterns()
        self.control.prepare(patterns)
        due = {
            number: strategy.period_s
            for number, strategy in enumerate(self.control.strategies)
            if strategy.period_s > 0
        }
        statistics_s = self.control.statistics_s
        self._begin(workload.begin())
        while not workload.finished and self.now_s < until_s:
            if self._patterns() is not patterns:
                patterns = self._patterns()
                for strategy in self.control.strategies:
                    self._changed |= self.control.rearrange(strategy, self.now_s, patterns)
            self._start_waiting()
            if self._changed:
                self._share()
            times = np.divide(self._left_bytes, self._rates, out=np.full(len(self._active), inf), where=self._rates > 0)
            begins_s = self._waiting[0][0] if self._waiting else inf
            if not self._active and not self._waiting:
                raise AssertionError(f"at {self.now_s} s a workload waits without any transfer")
            arrives_s = self.now_s + float(times.min(initial=inf))
            self._advance(min(arrives_s, begins_s, statistics_s, until_s, *due.values()))
            if arrives_s <= self.now_s:
                self._arrive(workload)
            if statistics_s <= self.now_s:
                self._measure()
                statistics_s += self.control.statistics_s
            for number, at_s in due.items():
                if at_s <= self.now_s:
                    strategy = self.control.strategies[number]
                    self._changed |= self.control.rearrange(strategy, self.now_s, patterns)
                    due[number] = at_s + strategy.period_s

    def rates(self) -> dict[FlowKey, float]:
        """Return the current rate of each active flow, in bytes a second."""
        self._share()
        rates: defaultdict[FlowKey, float] = defaultdict(float)
        for transfer, rate in zip(self._active, self._rates, strict=True):
            rates[transfer.key] += float(rate)
        return dict(rates)

    def _begin(self, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            heapq.heappush(self._waiting, (self.now_s + transfer.delay_s, next(self._numbers), transfer))

    def _start_waiting(self) -> None:
        begun: list[Transfer] = []
        while self._waiting and self._waiting[0][0] <= self.now_s:
            transfer = heapq.heappop(self._waiting)[2]
            self._open(transfer.connection, transfer.source)
            begun.append(transfer)
        if begun:
            sizes = np.array([transfer.size_bytes for transfer in begun], dtype=np.float64)
            self._active += begun
            self._left_bytes = np.concatenate((self._left_bytes, sizes))
            self._counted_bytes = np.concatenate((self._counted_bytes, sizes))
            self._changed = True

    def _open(self, connection: Connection, source: str) -> None:
        """Place the flows that the first packets of this transfer need."""
        sides = (connection.active, connection.passive) if connection.protocol == "tcp" else (source,)
        for side in sides:
            identification = connection.identification if side == connection.active else 0
            flow = Flow(connection.key(side), connection.profile, identification)
            self.control.use(flow, self.now_s, self._patterns())

    def _patterns(self) -> tuple[Pattern, ...]:
        return self._workload.patterns if self._announced and self._workload is not None else ()

    def _share(self) -> None:
        """Recompute all rates; cached for the same flows on the same paths."""
        if self._sends is None:
            self._rates, self._link_rates = self._shared([transfer.key for transfer in self._active])
        else:
            going = np.array([self._sends(transfer, self.now_s) for transfer in self._active], dtype=bool)
            sending = [transfer for transfer, goes in zip(self._active, going.tolist(), strict=True) if goes]
            for transfer in sending:
                if not self.control.is_placed(transfer.key):  # its rules have expired while it paused
                    self._open(transfer.connection, transfer.source)
            self._rates = np.zeros(len(self._active))
            self._rates[going], self._link_rates = self._shared([transfer.key for transfer in sending])
        self._changed = False

    def _shared(self, keys: list[FlowKey]) -> tuple[Rates, Rates]:
        """The rates of transfers that send, and what each link then carries."""
        known = (self.control.moves, *keys)
        if known not in self._remembered:
            links = [self.control.links(key) for key in keys]
            shares = [self.control.shares(key) for key in keys]
            is_sprayed = any(share is not None for share in shares)
            rates = max_min(links, self._capacity, shares if is_sprayed else None)
            on_links: Rates = np.zeros(len(self._capacity))
            if links:
                sent = np.repeat(rates, [len(crossed) for crossed in links])
                if is_sprayed:
                    sent *= weights_of(links, shares)
                np.add.at(on_links, np.concatenate(links), sent)
            if len(self._remembered) >= min(_REMEMBERED, 1 + _REMEMBERED_NUMBERS // len(self._capacity)):
                self._remembered.clear()
            self._remembered[known] = (rates, on_links)
        return self._remembered[known]

    def _advance(self, to_s: float) -> None:
        step_s = to_s - self.now_s
        self._left_bytes = self._left_bytes - self._rates * step_s
        self._sent += self._link_rates * step_s
        self.now_s = to_s

    def _arrive(self, workload: Workload) -> None:
        # What is sent within the clock's last digit would need a step of no length, again and again.
        is_done = self._left_bytes <= _NOTHING_BYTES + self._rates * np.spacing(self.now_s)
        done = [(self._active[number], float(self._counted_bytes[number])) for number in np.flatnonzero(is_done)]
        self._active = [transfer for transfer, over in zip(self._active, is_done.tolist(), strict=True) if not over]
        self._left_bytes, self._counted_bytes = self._left_bytes[~is_done], self._counted_bytes[~is_done]
        # The rates of the others are those before until they are shared again.
        self._rates = self._rates[~is_done]
        self._changed = True
        for transfer, counted_bytes in done:
            self._flow_bytes[transfer.key] += counted_bytes
            self._begin(workload.arrived(transfer, self.now_s))

    def _measure(self) -> None:
        for transfer, sent in zip(self._active, (self._counted_bytes - self._left_bytes).tolist(), strict=True):
            self._flow_bytes[transfer.key] += sent
        self._counted_bytes = self._left_bytes
        self.control.measure(self.now_s, self._sent, self._flow_bytes)
        self._sent = np.zeros(len(self._capacity))
        self._flow_bytes.clear()
