# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rates from counters: per port and per flow, per second. Pure."""

from collections.abc import Iterable

from barewire.sdn.openflow.messages import PortCounter
from barewire.topology import Port


class PortRates:
    """Rates of ports between their last two counts."""

    def __init__(self) -> None:
        """Begin without counts."""
        self.load_byte_s: dict[Port, float] = {}
        self.received_byte_s: dict[Port, float] = {}
        self._last: dict[Port, tuple[PortCounter, float]] = {}

    def counted(self, switch: str, counters: Iterable[PortCounter], now: float) -> None:
        """Update with the counters of all ports of a switch."""
        for counter in counters:
            port = Port(switch, counter.number)
            before, then_s = self._last.get(port, (counter, now))
            sent, received = counter.sent_bytes - before.sent_bytes, counter.received_bytes - before.received_bytes
            # Smaller counters mean that the switch has restarted.
            if now > then_s and sent >= 0 and received >= 0:
                self.load_byte_s[port] = sent / (now - then_s)
                self.received_byte_s[port] = received / (now - then_s)
            self._last[port] = counter, now

    def forget(self, switch: str) -> None:
        """Remove a switch that does not answer, because its last rates would persist."""
        for rates in (self.load_byte_s, self.received_byte_s, self._last):
            for port in [port for port in rates if port.node == switch]:
                del rates[port]
