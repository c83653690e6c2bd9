# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Contention at the ports of a switch while every rank sends messages to all others at once.

Each rank has a link to the switch and one from it, which carry a byte at a time in order of arrival. If the ranks went
through their peers in step, every link would always be busy, and the messages would take the time of their bytes on one
link. They do not: a rank sends as much to each peer as the peer's window allows, then to the next one, in an order that
differs from the others'. Then several bursts meet at one port while another port is idle. How long that takes follows
from the number of ranks and from the messages' size relative to the window. It is simulated: closed forms exist only
for endless traffic (Karol, Hluchyj and Morgan 1987).
"""

import heapq
import random
from dataclasses import dataclass
from functools import cache
from itertools import count

import numpy as np

from barewire.models.wire import wire_time_ns

# Frames that an LLC connection has in flight (crates/llc/src/bounds.rs). A library's TCP has a window of similar size.
WINDOW_FRAMES = 63
# Parts of a window that are acknowledged separately (LLC: every 16 frames of 63).
_PIECES = 4
# Longer messages wait as long as messages of this many windows.
_WINDOWS_MAX = 8
# With more ranks the wait grows in proportion, within a fifth (16 ranks).
_RANKS_MAX = 8
_ORDERS = 8


@dataclass(frozen=True)
class Ports:
    """Links of equal rate between ranks and a switch. ValueError for a rate of 0 or less."""

    rate_bit_s: float
    mtu: int

    def message_us(self, message_bytes: float) -> float:
        """Time of a message's frames on a link, in µs, without headers above Ethernet's."""
        return wire_time_ns(round(message_bytes), "raw", self.mtu, self.rate_bit_s) / 1e3

    def contention_us(self, ranks: int, message_bytes: float, in_flight_bytes: float | None = None) -> float:
        """Time beyond that of P − 1 messages on a link, until all messages to all others have arrived, in µs.

        `in_flight_bytes` bounds what a rank sends to a peer before that has received it, below the window.
        """
        if ranks < 3 or message_bytes <= 0:
            return 0.0
        window = min(WINDOW_FRAMES * self.mtu, in_flight_bytes or message_bytes, message_bytes)
        # In steps of a twelfth of an octave, so that few cases are simulated.
        windows = round(2 ** (round(12 * np.log2(min(message_bytes / window, _WINDOWS_MAX))) / 12), 3)
        return excess(ranks, windows) * self.message_us(window)


@cache
def excess(ranks: int, windows: float) -> float:
    """Return the time beyond P − 1 messages of `windows` windows each, in windows: a mean over random orders."""
    fewer = min(ranks, _RANKS_MAX)
    pieces = max(1, round(windows * _PIECES))
    made = sum(_finish(fewer, pieces, random.Random(seed)) for seed in range(_ORDERS)) / _ORDERS
    return max(0.0, made - (fewer - 1) * pieces) / _PIECES * (ranks - 1) / (fewer - 1)


def _finish(ranks: int, pieces: int, generator: random.Random) -> float:
    """Return the time until `pieces` pieces from each rank to each other have arrived, in pieces."""
    into, out_of = [0.0] * ranks, [0.0] * ranks
    orders = [generator.sample([to for to in range(ranks) if to != rank], ranks - 1) for rank in range(ranks)]
    left = {(rank, to): pieces for rank in range(ranks) for to in orders[rank]}
    events: list[tuple[float, int, str, int, int]] = []
    number = count()

    def send(now: float, rank: int, to: int, most: int) -> None:
        sent = min(most, left[rank, to])
        left[rank, to] -= sent
        for _ in range(sent):
            into[rank] = max(into[rank], now) + 1
            heapq.heappush(events, (into[rank], next(number), "at the switch", rank, to))

    for rank in range(ranks):
        for to in orders[rank]:
            send(0.0, rank, to, _PIECES)
    last = 0.0
    while events:
        now, _, event, rank, to = heapq.heappop(events)
        if event == "at the switch":
            out_of[to] = max(out_of[to], now) + 1
            heapq.heappush(events, (out_of[to], next(number), "arrived", rank, to))
        elif event == "arrived":
            last = now
            # The acknowledgement is short, but queues at both links.
            heapq.heappush(events, (max(into[to], now), next(number), "acknowledged", rank, to))
        elif event == "acknowledged":
            heapq.heappush(events, (max(out_of[rank], now), next(number), "known", rank, to))
        else:
            send(now, rank, to, 1)
    # The first piece is late by its time on the second link, which is part of a message's latency.
    return last - 1
