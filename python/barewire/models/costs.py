# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Costs of messages among P ranks from the functions measured between two ranks that have a core each.

Where k ranks share a core, each message's processor time Os + Or counts k times; its time on the wire does not. That
is the least that sharing costs: time that a ready rank waits for the scheduler is not part of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from barewire.models.interpolation import Interpolated
from barewire.models.ports import Ports
from barewire.models.times import CannotSay, Floats

# Messages this short take the same time.
_SHORT_BYTES = 64


@dataclass(frozen=True, eq=False)
class TwoRankCosts:
    """Functions of the message size between two ranks, in µs, and the number of ranks that share a core.

    `latency`: EEL(m), one way. `exchanged`: two ranks send each other a message; None: as long as one way. `gap`: time
    per message of a rank that sends without a pause. `both_ways`: of one that sends and receives, message by message.
    `processor`: Os + Or; needed if ranks share cores. `ports`: the links to a switch, if their rate is known.
    """

    latency: Interpolated
    exchanged: Interpolated | None = None
    gap: Interpolated | None = None
    both_ways: Interpolated | None = None
    processor: Interpolated | None = None
    ranks_per_core: int = 1
    ports: Ports | None = None

    @property
    def launches(self) -> int:
        """Number of launches of the least measured function, which bounds what the interval can say."""
        used = (self.latency, self.exchanged, self.gap, self.both_ways, self.processor)
        return min(each.launches for each in used if each is not None)

    def one_way(self, message_bytes: float) -> Floats:
        """One message, while nothing else happens."""
        return self._shared(self.latency(message_bytes), message_bytes)

    def exchange(self, message_bytes: float) -> Floats:
        """Two ranks send each other a message at once."""
        return self._shared((self.exchanged or self.latency)(message_bytes), message_bytes)

    def all_at_once(self, messages: int, message_bytes: float) -> Floats:
        """Each rank sends and receives this many messages at once: an exchange, and the others behind it."""
        if messages == 0:
            return np.zeros(len(self.latency.draws))
        return np.asarray(self.exchange(message_bytes) + (messages - 1) * self.sustained(message_bytes))

    def all_to_all(self, ranks: int, message_bytes: float) -> Floats:
        """All ranks send each other a message at once, in no common order, so that they contend at ports."""
        together = self.all_at_once(ranks - 1, message_bytes)
        return together if self.ports is None else together + self.ports.contention_us(ranks, message_bytes)

    def link_time(self, sizes: Iterable[float]) -> float:
        """Time of these messages on a rank's link, one after another; 0 if its rate is not known."""
        return 0.0 if self.ports is None else sum(self.ports.message_us(size) for size in sizes)

    def sustained(self, message_bytes: float) -> Floats:
        """Time per message of a rank that sends and receives many without a pause.

        The wire carries one each way per gap, the processor sends and receives one in Os + Or. A link is not faster
        than its rate, whatever was measured.
        """
        on_link = self.link_time([message_bytes])
        if self.gap is not None and self.processor is not None:
            return np.maximum(np.maximum(self.gap(message_bytes), on_link), self.processor_time(message_bytes))
        alone = np.maximum((self.both_ways or self.gap or self.exchanged or self.latency)(message_bytes), on_link)
        return alone if self.ranks_per_core == 1 else np.maximum(alone, self.processor_time(message_bytes))

    def processor_time(self, message_bytes: float) -> Floats:
        """Processor time of sending and receiving one message, on all ranks of a core."""
        if self.processor is None:
            raise CannotSay(
                "ranks share cores, and the processor time of a message is unknown; measure logp or overhead too"
            )
        return self.ranks_per_core * np.maximum(self.processor(message_bytes), 0)

    def covers(self, message_bytes: float) -> bool:
        """Return whether messages of this size were measured, lie between measured sizes, or are as short."""
        measured = self.exchanged or self.latency
        return measured.covers(message_bytes) or max(message_bytes, measured.sizes[0]) <= _SHORT_BYTES

    def _shared(self, alone: Floats, message_bytes: float) -> Floats:
        if self.ranks_per_core == 1:
            return alone
        # A message's first frame waits for the other ranks' processor time; later frames overlap with it.
        one = self.processor_time(self.latency.sizes[0]) / self.ranks_per_core
        return np.maximum(alone + (self.ranks_per_core - 1) * one, self.processor_time(message_bytes))
