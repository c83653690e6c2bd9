# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Costs of messages among P ranks from the functions measured between two ranks that have a core each.

Where k ranks share a core, each message's processor time Os + Or counts k times; its time on the wire does not. That
is the least that sharing costs: time that a ready rank waits for the scheduler is not part of it.
"""

from dataclasses import dataclass

import numpy as np

from barewire.models.interpolation import Interpolated
from barewire.models.times import CannotSay, Floats


@dataclass(frozen=True, eq=False)
class TwoRankCosts:
    """Functions of the message size between two ranks, in µs, and the number of ranks that share a core.

    `latency`: EEL(m), one way. `exchanged`: two ranks send each other a message; None: as long as one way. `both_ways`:
    time per message of a rank that sends and receives without a pause; None: as an exchange. `processor`: Os + Or;
    only needed if ranks share cores.
    """

    latency: Interpolated
    exchanged: Interpolated | None = None
    both_ways: Interpolated | None = None
    processor: Interpolated | None = None
    ranks_per_core: int = 1

    @property
    def launches(self) -> int:
        """Number of launches of the least measured function, which bounds what the interval can say."""
        used = (self.latency, self.exchanged, self.both_ways, self.processor)
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
        following = self.both_ways or self.exchanged or self.latency
        alone = self.exchange(message_bytes) + (messages - 1) * following(message_bytes)
        if self.ranks_per_core == 1:
            return np.asarray(alone)
        return np.maximum(alone, messages * self.processor_time(message_bytes))

    def sustained(self, message_bytes: float) -> Floats:
        """Time per message of a rank that sends and receives messages without a pause."""
        alone = (self.both_ways or self.exchanged or self.latency)(message_bytes)
        return alone if self.ranks_per_core == 1 else np.maximum(alone, self.processor_time(message_bytes))

    def processor_time(self, message_bytes: float) -> Floats:
        """Processor time of sending and receiving one message, on all ranks of a core."""
        if self.processor is None:
            raise CannotSay(
                "ranks share cores, and the processor time of a message is unknown; measure logp or overhead too"
            )
        return self.ranks_per_core * np.maximum(self.processor(message_bytes), 0)

    def covers(self, message_bytes: float) -> bool:
        """Return whether messages of this size were measured, or lie between measured sizes."""
        return (self.exchanged or self.latency).covers(message_bytes)

    def _shared(self, alone: Floats, message_bytes: float) -> Floats:
        if self.ranks_per_core == 1:
            return alone
        # A message's first frame waits for the other ranks' processor time; later frames overlap with it.
        one = self.processor_time(self.latency.sizes[0]) / self.ranks_per_core
        return np.maximum(alone + (self.ranks_per_core - 1) * one, self.processor_time(message_bytes))
