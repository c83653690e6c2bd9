# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From counters to rates: what each port sends and receives, and what each flow carries, a second. Pure."""

from collections.abc import Iterable

from barewire.sdn.openflow.messages import PortCounter
from barewire.topology import Port


class PortRates:
    """What ports sent and received a second, between their last two counts."""

    def __init__(self) -> None:
        """Nothing was counted."""
        self.load_byte_s: dict[Port, float] = {}
        self.received_byte_s: dict[Port, float] = {}
        self._last: dict[Port, tuple[PortCounter, float]] = {}

    def counted(self, switch: str, counters: Iterable[PortCounter], now: float) -> None:
        """Take the counters of all ports of a switch."""
        for counter in counters:
            port = Port(switch, counter.number)
            before, then_s = self._last.get(port, (counter, now))
            sent, received = counter.sent_bytes - before.sent_bytes, counter.received_bytes - before.received_bytes
            # Smaller counters are those of a switch that has begun anew.
            if now > then_s and sent >= 0 and received >= 0:
                self.load_byte_s[port] = sent / (now - then_s)
                self.received_byte_s[port] = received / (now - then_s)
            self._last[port] = counter, now

    def forget(self, switch: str) -> None:
        """Forget a switch that does not answer: its last rates would stay for ever."""
        for rates in (self.load_byte_s, self.received_byte_s, self._last):
            for port in [port for port in rates if port.node == switch]:
                del rates[port]
