# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Assigns frames to phases of the job, in one pass; pure.

Memory grows with the number of connections and of different frames, not with the number of frames.

A connection between ranks is opened (*connect*), carries messages (*data*) from its first payload to its last, and
*ends* with what follows. What is last is known only at the end of the capture: frames since the last payload are kept
apart.

TCP connections of launchers and daemons count as *launch* until the last message between ranks, and then as *end*.
They are told apart by their servers: port 22, and the server of the first other connection, to which each daemon of a
launcher reports. If Barewire carries messages, every TCP connection is the launcher's. If no connection is left, none
was.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from barewire.account.frame import Carrier, Event, Frame, Shape, Station, repeated

_SSH_PORT = "22"
_SEQUENCES = 1 << 32
# Ethernet's part of a frame, with a VLAN tag.
_ETHERNET_BYTES = 38 + 4


class Phase(Enum):
    """A phase of a job."""

    LAUNCH = "launch"
    CONNECT = "connect"
    DATA = "data"
    END = "end"


Entry = tuple[str, str, Shape]
"""Source, destination, shape: what is counted."""
Counts = Counter[Entry]


class _Tally:
    """Counts before, between and after payloads of one kind."""

    def __init__(self) -> None:
        self.before: Counts = Counter()
        self.during: Counts = Counter()
        self.since: Counts = Counter()
        self.has_begun = False

    def add(self, entry: Entry) -> None:
        (self.since if self.has_begun else self.before)[entry] += 1

    def payload(self) -> None:
        self.has_begun = True
        if self.since:
            self.during.update(self.since)
            self.since.clear()


class _Connection:
    """One connection, told in two ways: as the ranks' and as the launcher's."""

    def __init__(self, carrier: Carrier, is_launchers: bool) -> None:
        self.carrier = carrier
        self.is_launchers = is_launchers
        self.of_ranks = _Tally()
        self.closing: Counts = Counter()
        self.of_launcher = _Tally()
        self.next_sequence: dict[Station, int] = {}
        self.mss: int | None = None

    def add(self, entry: Entry, event: Event) -> None:
        if event is Event.PAYLOAD:
            self.of_ranks.payload()
            self.of_ranks.during[entry] += 1
        elif event is Event.OPEN:
            self.of_ranks.before[entry] += 1
        elif event is Event.CLOSE:
            self.closing[entry] += 1
        else:
            self.of_ranks.add(entry)


class Ledger:
    """Frames in, in the order of the capture; counts by phase out."""

    def __init__(self, mtu: int) -> None:
        """Start with no frame; `mtu` is that of the links, or the largest that is possible."""
        self.uncut = 0
        """Frames longer than their connection or a link allows: captured before they are cut by the sender."""
        self._frame_bytes_max = mtu + _ETHERNET_BYTES
        self._connections: dict[frozenset[Station], _Connection] = {}
        self._open_tallies: set[_Tally] = set()
        self._launchers_server: Station | None = None
        self._others = _Tally()
        self._others_while_connecting: Counts = Counter()
        self._is_connecting = False
        self._has_payload = False
        self._has_barewire = False

    def add(self, frame: Frame) -> None:
        """Count a frame."""
        connection = self._connection(frame)
        shape = frame.shape
        if connection is not None and shape.carrier is Carrier.TCP and self._was_sent_before(frame, connection):
            shape = repeated(shape)
        if connection is not None and connection.mss is not None:
            self.uncut += frame.shape.layers.payload > connection.mss
        else:
            self.uncut += sum(shape.layers) > self._frame_bytes_max
        entry = (frame.source, frame.destination, shape)
        if connection is None:
            self._add_other(entry)
            return
        is_payload = shape.event is Event.PAYLOAD
        if is_payload and self._is_between_ranks(connection):
            self._payload()
        connection.add(entry, shape.event)
        if connection.carrier is Carrier.TCP:
            connection.of_launcher.has_begun = self._has_payload
            connection.of_launcher.add(entry)
            if self._has_payload:
                self._open_tallies.add(connection.of_launcher)

    def counts(self) -> dict[Phase, Counts]:
        """Return what was counted, by phase."""
        totals: dict[Phase, Counts] = {phase: Counter() for phase in Phase}
        ranks = self._ranks_connections()
        for connection in self._connections.values():
            if connection in ranks:
                totals[Phase.CONNECT].update(connection.of_ranks.before)
                totals[Phase.DATA].update(connection.of_ranks.during)
                totals[Phase.END].update(connection.of_ranks.since)
                totals[Phase.END].update(connection.closing)
            else:
                tally = connection.of_launcher
                totals[Phase.LAUNCH].update(_launchers(tally.before))
                totals[Phase.LAUNCH].update(_launchers(tally.during))
                totals[Phase.END].update(_launchers(tally.since))
        totals[Phase.LAUNCH].update(self._others.before)
        totals[Phase.CONNECT].update(self._others_while_connecting)
        totals[Phase.DATA].update(self._others.during)
        totals[Phase.END].update(self._others.since)
        return totals

    def _connection(self, frame: Frame) -> _Connection | None:
        if frame.stations is None:
            return None
        ends = frozenset(frame.stations)
        connection = self._connections.get(ends)
        if connection is None:
            carrier = frame.shape.carrier
            connection = _Connection(carrier, carrier is Carrier.TCP and self._is_launchers(frame))
            self._connections[ends] = connection
        if frame.mss is not None:
            connection.mss = min(frame.mss, connection.mss or frame.mss)
        self._is_connecting |= not connection.is_launchers
        return connection

    def _is_launchers(self, frame: Frame) -> bool:
        assert frame.stations is not None
        server = frame.server or min(frame.stations, key=lambda station: int(station[1]))
        if any(port == _SSH_PORT for _, port in frame.stations):
            return True
        if self._launchers_server is None:
            self._launchers_server = server
        return server == self._launchers_server

    def _is_between_ranks(self, connection: _Connection) -> bool:
        if connection.carrier in (Carrier.FRAMES, Carrier.DATAGRAMS):
            self._has_barewire = True
            return True
        return not connection.is_launchers and not (self._has_barewire and connection.carrier is Carrier.TCP)

    def _payload(self) -> None:
        """Note a message between ranks: what came before it is not after the last one."""
        self._has_payload = True
        for tally in self._open_tallies:
            tally.payload()
        self._open_tallies.clear()
        self._others.payload()

    def _add_other(self, entry: Entry) -> None:
        if self._is_connecting and not self._has_payload:
            self._others_while_connecting[entry] += 1
        else:
            self._others.add(entry)

    def _was_sent_before(self, frame: Frame, connection: _Connection) -> bool:
        """Return whether a TCP segment repeats bytes: it begins before what its sender has sent already."""
        assert frame.stations is not None and frame.sequence is not None
        payload = frame.shape.layers.payload
        sender = frame.stations[0]
        expected = connection.next_sequence.get(sender)
        # The SYN takes a number.
        is_syn = frame.shape.event is Event.OPEN
        end = (frame.sequence + payload + is_syn) % _SEQUENCES
        # A connection may follow another one between the same ports.
        if expected is None or is_syn or _is_behind(expected, end):
            connection.next_sequence[sender] = end
        return bool(payload) and expected is not None and _is_behind(frame.sequence, expected)

    def _ranks_connections(self) -> set[_Connection]:
        connections: Iterable[_Connection] = self._connections.values()
        barewire = {one for one in connections if one.carrier in (Carrier.FRAMES, Carrier.DATAGRAMS)}
        udp = {one for one in connections if one.carrier is Carrier.UDP}
        if self._has_barewire:
            return barewire | udp
        ranks = barewire | udp | {one for one in connections if one.carrier is Carrier.TCP and not one.is_launchers}
        return ranks or set(connections)


def _is_behind(sequence: int, reference: int) -> bool:
    """Compare sequence numbers that wrap."""
    return 0 < (reference - sequence) % _SEQUENCES < _SEQUENCES // 2


def _launchers(counts: Counts) -> Counts:
    """Return the same counts with payloads as the launcher's."""
    result: Counts = Counter()
    for (source, destination, shape), count in counts.items():
        layers = shape.layers
        own = shape._replace(layers=layers._replace(payload=0, launcher=layers.payload))
        result[source, destination, own] += count
    return result
