# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated time: transfers start, share links max-min fairly, and finish; rates are constant between events.

The next event is the earliest of: a transfer finishes, a transfer starts, statistics are due, a strategy is due.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from math import inf

import numpy as np

from barewire.sdn.fairness import Rates, max_min
from barewire.sdn.flow import Flow, FlowKey
from barewire.sdn.simulate.control import Control, Policy, Timing
from barewire.sdn.simulate.workload import Connection, Transfer, Workload
from barewire.topology import Network

# A transfer with fewer bytes left is finished: above rounding errors, and below any message size.
_NOTHING_BYTES = 1e-3
_REMEMBERED = 4096


@dataclass
class _Active:
    transfer: Transfer
    left_bytes: float
    counted_bytes: float


class Engine:
    """One network with its controller and one workload."""

    def __init__(self, network: Network, policy: Policy, *, efficiency: float = 1.0, timing: Timing | None = None):
        """`efficiency` is the share of a link's rate that payload gets."""
        self.control = Control(network, policy, timing or Timing())
        self.now_s = 0.0
        self._capacity = self.control.capacity * efficiency
        self._numbers = count()
        self._waiting: list[tuple[float, int, Transfer]] = []
        self._active: list[_Active] = []
        self._rates: Rates = np.zeros(0)
        self._link_rates: Rates = np.zeros(len(self._capacity))
        self._sent: Rates = np.zeros(len(self._capacity))
        self._flow_bytes: defaultdict[FlowKey, float] = defaultdict(float)
        self._remembered: dict[tuple[object, ...], tuple[Rates, Rates]] = {}
        self._changed = True

    def run(self, workload: Workload, until_s: float = inf) -> None:
        """Simulate until the workload has finished, or until `until_s`."""
        patterns = workload.patterns
        due = {
            number: strategy.period_s
            for number, strategy in enumerate(self.control.strategies)
            if strategy.period_s > 0
        }
        statistics_s = self.control.timing.statistics_s
        self._begin(workload.begin())
        while not workload.finished and self.now_s < until_s:
            if workload.patterns is not patterns:
                patterns = workload.patterns
                for strategy in self.control.strategies:
                    self._changed |= self.control.rearrange(strategy, self.now_s, patterns)
            self._start_waiting(workload)
            if self._changed:
                self._share()
            remaining_bytes = np.array([active.left_bytes for active in self._active])
            times = np.divide(
                remaining_bytes, self._rates, out=np.full(len(remaining_bytes), inf), where=self._rates > 0
            )
            begins_s = self._waiting[0][0] if self._waiting else inf
            if not self._active and not self._waiting:
                raise AssertionError(f"at {self.now_s} s a workload waits without any transfer")
            arrives_s = self.now_s + float(times.min(initial=inf))
            self._advance(min(arrives_s, begins_s, statistics_s, until_s, *due.values()))
            if arrives_s <= self.now_s:
                self._arrive(workload)
            if statistics_s <= self.now_s:
                self._measure()
                statistics_s += self.control.timing.statistics_s
            for number, at_s in due.items():
                if at_s <= self.now_s:
                    strategy = self.control.strategies[number]
                    self._changed |= self.control.rearrange(strategy, self.now_s, patterns)
                    due[number] = at_s + strategy.period_s

    def rates(self) -> dict[FlowKey, float]:
        """Return the current rate of each active flow, in bytes a second."""
        self._share()
        rates: defaultdict[FlowKey, float] = defaultdict(float)
        for active, rate in zip(self._active, self._rates, strict=True):
            rates[active.transfer.key] += float(rate)
        return dict(rates)

    def _begin(self, transfers: Iterable[Transfer]) -> None:
        for transfer in transfers:
            heapq.heappush(self._waiting, (self.now_s + transfer.delay_s, next(self._numbers), transfer))

    def _start_waiting(self, workload: Workload) -> None:
        while self._waiting and self._waiting[0][0] <= self.now_s:
            transfer = heapq.heappop(self._waiting)[2]
            self._open(transfer.connection, transfer.source, workload)
            self._active.append(_Active(transfer, transfer.size_bytes, transfer.size_bytes))
            self._changed = True

    def _open(self, connection: Connection, source: str, workload: Workload) -> None:
        """Place the flows that the first packets of this transfer need."""
        sides = (connection.active, connection.passive) if connection.protocol == "tcp" else (source,)
        for side in sides:
            identification = connection.identification if side == connection.active else 0
            flow = Flow(connection.key(side), connection.profile, identification)
            self.control.use(flow, self.now_s, workload.patterns)

    def _share(self) -> None:
        """Recompute all rates; cached for the same flows on the same paths."""
        keys = [active.transfer.key for active in self._active]
        known = (self.control.moves, *keys)
        if known not in self._remembered:
            links = [self.control.links(key) for key in keys]
            shares = [self.control.shares(key) for key in keys]
            rates = max_min(links, self._capacity, shares)
            on_links = np.zeros(len(self._capacity))
            for crossed, share, rate in zip(links, shares, rates, strict=True):
                on_links[crossed] += rate if share is None else rate * share
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[known] = (rates, on_links)
        self._rates, self._link_rates = self._remembered[known]
        self._changed = False

    def _advance(self, to_s: float) -> None:
        step_s = to_s - self.now_s
        for active, rate in zip(self._active, self._rates, strict=True):
            active.left_bytes -= float(rate) * step_s
        self._sent += self._link_rates * step_s
        self.now_s = to_s

    def _arrive(self, workload: Workload) -> None:
        done = [active for active in self._active if active.left_bytes <= _NOTHING_BYTES]
        self._active = [active for active in self._active if active.left_bytes > _NOTHING_BYTES]
        self._changed = True
        for active in done:
            self._flow_bytes[active.transfer.key] += active.counted_bytes
            self._begin(workload.arrived(active.transfer, self.now_s))

    def _measure(self) -> None:
        for active in self._active:
            self._flow_bytes[active.transfer.key] += active.counted_bytes - active.left_bytes
            active.counted_bytes = active.left_bytes
        self.control.measure(self.now_s, self._sent, self._flow_bytes)
        self._sent = np.zeros(len(self._capacity))
        self._flow_bytes.clear()
