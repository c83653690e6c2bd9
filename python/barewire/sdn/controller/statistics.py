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
        self._ports: dict[str, set[Port]] = {}

    def counted(self, switch: str, counters: Iterable[PortCounter], now: float) -> None:
        """Update with the counters of all ports of a switch, and forget the ports that it no longer has."""
        known, ports = self._ports.get(switch, set()), set[Port]()
        for counter in counters:
            port = Port(switch, counter.number)
            ports.add(port)
            before, then_s = self._last.get(port, (counter, now))
            sent, received = counter.sent_bytes - before.sent_bytes, counter.received_bytes - before.received_bytes
            # Smaller counters mean that the switch has restarted.
            if now > then_s and sent >= 0 and received >= 0:
                self.load_byte_s[port] = sent / (now - then_s)
                self.received_byte_s[port] = received / (now - then_s)
            self._last[port] = counter, now
        self._ports[switch] = ports
        self._drop(known - ports)

    def forget(self, switch: str) -> None:
        """Remove a switch that does not answer, because its last rates would persist."""
        self._drop(self._ports.pop(switch, set()))

    def _drop(self, ports: Iterable[Port]) -> None:
        for port in ports:
            for rates in (self.load_byte_s, self.received_byte_s, self._last):
                rates.pop(port, None)
