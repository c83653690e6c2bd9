# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What switches count of each conversation, as features of a classifier. No clock, no I/O.

A *conversation* is both directions of a TCP or UDP flow. Its *service* is the end that the other end connected to. Its
features are its own counters and those of its service, its two hosts, and this pair of hosts: one idle connection looks
like any other, but not the hosts that serve each other on many random ports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from barewire.sdn.flow import FlowKey

# Host, port, protocol.
End = tuple[str, int, str]
Matrix = NDArray[np.float32]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

# Changed when a feature changes its meaning: models and recordings of another version are refused.
FEATURES_VERSION = 1
# Bytes, counts, seconds and ports are log2(1 + x), balances log2 of up to down; packets' bytes are means.
FEATURES = (
    # Its own traffic; up is from the client to the service.
    "up_bytes",
    "down_bytes",
    "up_packet_bytes",
    "down_packet_bytes",
    "balance",
    "age_s",
    "active_share",  # of the intervals between counts, those with a packet
    "burst",  # log2 of its largest interval's bytes to its mean interval's
    "gap_s",  # longest time without a packet
    "service_port",
    "client_port",
    "is_udp",
    # All conversations of its service.
    "service_conversations",
    "service_clients",  # hosts
    "service_bytes",
    "service_balance",
    "service_packet_bytes",
    "service_idle_share",  # of these conversations
    # All of its server's and of its client's host.
    "server_services",  # that other hosts use
    "server_low_services",  # of these, with ports below those that systems assign
    "server_peers",
    "server_conversations",
    "server_idle_share",
    "server_packet_bytes",
    "server_hub",  # the most clients that a service has which this host uses
    "client_services",
    "client_low_services",
    "client_peers",
    "client_conversations",
    "client_idle_share",
    "client_packet_bytes",
    "client_hub",
    "client_uses",  # services of other hosts
    # All between the two hosts.
    "pair_conversations",
    "pair_bytes",
)

_ASSIGNED_FROM = 32768
# A conversation that was not counted for three intervals has ended.
_SILENT_INTERVALS = 3.5
_FIRST_ROWS = 256


class _At(IntEnum):
    """Columns of a conversation's numbers. Four counters each: packets and bytes of its first, then its second end."""

    LAST = 0
    TOTAL = 4
    INTERVAL = 8
    # Since when the first and the second end's flow is counted.
    BEGAN = 12
    SINCE = 14
    SEEN = auto()
    ACTIVE = auto()
    GAP = auto()
    INTERVALS = auto()
    BUSY = auto()
    LARGEST = auto()
    IS_IDLE = auto()
    COLUMNS = auto()


class _Id(IntEnum):
    """Columns of a conversation's identifiers: its two ends, their hosts and ports, protocol, number."""

    END = 0
    HOST = 2
    PORT = 4
    IS_UDP = 6
    NUMBER = 7
    COLUMNS = 8


@dataclass(frozen=True)
class Features:
    """The features of all conversations at one time: row i of `rows` (float32, one column for each of FEATURES) is of
    `keys[i]`, one direction of a conversation, whose service is `services[i]`. `numbers[i]` is the conversation's for
    as long as it lives. `ended` are the ends of those that have ended since the last time.
    """

    keys: Sequence[FlowKey]
    services: Sequence[End]
    numbers: Sequence[int]
    rows: Matrix
    ended: Sequence[tuple[End, End]] = ()


def ends_of(key: FlowKey) -> tuple[End, End]:
    """Return the source's and the destination's end of a flow."""
    return (key.source, key.source_port, key.protocol), (key.destination, key.destination_port, key.protocol)


class Conversations:
    """The counters of all conversations: a row of arrays for each, which is reused after its end."""

    def __init__(self, interval_s: float) -> None:
        """Begin without conversations; `interval_s` is the time between two counts of a flow."""
        self._silent_s = _SILENT_INTERVALS * interval_s
        self._rows: dict[tuple[End, End], int] = {}
        self._keys: list[FlowKey | None] = []
        self._free: list[int] = []
        self._ended: list[tuple[End, End]] = []
        self._at: _Floats = np.zeros((0, _At.COLUMNS))
        self._ids: _Ints = np.zeros((0, _Id.COLUMNS), dtype=np.int64)
        self._end_ids: dict[End, int] = {}
        self._host_ids: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        """Number of conversations."""
        return len(self._rows)

    def counted(self, key: FlowKey, packets: int, carried: int, since_s: float, now: float) -> None:
        """Add a flow's counters since `since_s`; `carried` is in bytes. Only TCP and UDP count."""
        if not key.has_ports:
            return
        source, destination = ends_of(key)
        is_first = source < destination
        pair = (source, destination) if is_first else (destination, source)
        row = self._rows.get(pair)
        if row is None:
            row = self._begin(pair, key, since_s)
        numbers = self._at[row]
        numbers[_At.SEEN] = now
        at = 0 if is_first else 2
        began = _At.BEGAN + at // 2
        if numbers[began] != since_s:
            numbers[began] = since_s
            numbers[_At.LAST + at : _At.LAST + at + 2] = 0.0
        if numbers[_At.LAST + at] == packets and numbers[_At.LAST + at + 1] == carried:
            return
        for column, value in ((at, packets), (at + 1, carried)):
            last = numbers[_At.LAST + column]
            # Rules installed again in a switch that has restarted count from zero.
            new = value - last if value >= last else value
            numbers[_At.LAST + column] = value
            numbers[_At.TOTAL + column] += new
            numbers[_At.INTERVAL + column] += new

    def round(self, now: float) -> "Interval":
        """End an interval; return what all conversations have sent."""
        self.forget(now)
        ended, self._ended = self._ended, []
        rows = self._numbers()
        at = self._end_interval(rows, now)
        keys = [key for row in rows.tolist() if (key := self._keys[row]) is not None]
        return Interval(now, keys, list(self._end_ids), at, self._ids[rows], ended)

    def forget(self, now: float) -> None:
        """Forget the conversations that have ended; the next round would otherwise do so."""
        silent = np.flatnonzero(self._at[self._numbers(), _At.SEEN] < now - self._silent_s).tolist()
        pairs = list(self._rows) if silent else []
        for pair in map(pairs.__getitem__, silent):
            row = self._rows.pop(pair)
            self._keys[row] = None
            self._free.append(row)
            self._ended.append(pair)
        # Ends of conversations that are over keep their number until most are such.
        if len(self._end_ids) > 4 * len(self._rows) + _FIRST_ROWS:
            self._end_ids, self._host_ids = {}, {}
            ids = [self._identified(pair) for pair in self._rows]
            self._ids[self._numbers(), _Id.END : _Id.PORT] = np.reshape(ids, (-1, _Id.PORT - _Id.END))

    def _numbers(self) -> NDArray[np.intp]:
        """The rows of all conversations."""
        return np.fromiter(self._rows.values(), dtype=np.intp, count=len(self._rows))

    def _begin(self, pair: tuple[End, End], key: FlowKey, since_s: float) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._rows[pair], self._keys[row] = row, key
        self._at[row] = 0.0
        self._at[row, [_At.SINCE, _At.SEEN, _At.ACTIVE]] = since_s
        ids = self._ids[row]
        ids[_Id.END : _Id.PORT] = self._identified(pair)
        ids[_Id.PORT : _Id.PORT + 2] = pair[0][1], pair[1][1]
        ids[_Id.IS_UDP], ids[_Id.NUMBER] = key.transport == "udp", self._next
        self._next += 1
        return row

    def _identified(self, pair: tuple[End, End]) -> tuple[int, int, int, int]:
        """The numbers of both ends, then of their hosts."""
        ends, hosts = self._end_ids, self._host_ids
        first, second = pair
        return (
            ends.setdefault(first, len(ends)),
            ends.setdefault(second, len(ends)),
            hosts.setdefault(first[0], len(hosts)),
            hosts.setdefault(second[0], len(hosts)),
        )

    def _grow(self) -> None:
        before = len(self._keys)
        after = max(2 * before, _FIRST_ROWS)
        self._at = np.resize(self._at, (after, _At.COLUMNS)) if before else np.zeros((after, _At.COLUMNS))
        self._ids = np.resize(self._ids, (after, _Id.COLUMNS)) if before else np.zeros((after, _Id.COLUMNS), np.int64)
        self._keys += [None] * (after - before)
        self._free += range(after - 1, before - 1, -1)

    def _end_interval(self, rows: NDArray[np.intp], now: float) -> _Floats:
        """End an interval of these rows; return a copy of them."""
        at = self._at[rows]
        interval = at[:, _At.INTERVAL : _At.INTERVAL + 4]
        idle = interval[:, 0] + interval[:, 2] == 0
        at[:, _At.IS_IDLE] = idle
        at[:, _At.INTERVALS] += 1
        at[:, _At.BUSY] += ~idle
        at[:, _At.GAP] = np.maximum(at[:, _At.GAP], np.where(idle, now - at[:, _At.ACTIVE], 0.0))
        at[:, _At.ACTIVE] = np.where(idle, at[:, _At.ACTIVE], now)
        at[:, _At.LARGEST] = np.maximum(at[:, _At.LARGEST], interval[:, 1] + interval[:, 3])
        at[:, _At.INTERVAL : _At.INTERVAL + 4] = 0.0
        self._at[rows] = at
        return at


@dataclass(frozen=True)
class Interval:
    """The counters of all conversations at the end of an interval, with the ends by number, and those that have ended.

    Row i of `at` and of `ids` is of `keys[i]`. Nothing of it changes, so that another thread can compute the features.
    """

    now_s: float
    keys: Sequence[FlowKey]
    ends: Sequence[End]
    at: _Floats
    ids: _Ints
    ended: Sequence[tuple[End, End]]

    def features(self) -> Features:
        """Compute the features, of 5000 conversations in some 30 ms."""
        if not self.keys:
            return Features((), (), (), np.zeros((0, len(FEATURES)), dtype=np.float32), self.ended)
        server = _server_sides(self.ids)
        services = [self.ends[number] for number in _side(self.ids, _Id.END, server).tolist()]
        rows = _features(self.at, self.ids, server, self.now_s)
        return Features(self.keys, services, self.ids[:, _Id.NUMBER].tolist(), rows, self.ended)


def _side(ids: _Ints, column: int, side: NDArray[np.intp]) -> _Ints:
    """A column of the end that `side` (0 or 1) selects in each row."""
    chosen: _Ints = ids[np.arange(len(ids)), column + side]
    return chosen


def _server_sides(ids: _Ints) -> NDArray[np.intp]:
    """Which end serves: that of more conversations; else that below the range of assigned ports; else the odd one
    (Linux gives listeners odd ports and clients even ones); else the lower port.
    """
    uses = np.bincount(ids[:, _Id.END : _Id.END + 2].ravel())
    ports = ids[:, _Id.PORT : _Id.PORT + 2]
    rank = np.stack(
        [
            uses[ids[:, _Id.END : _Id.END + 2]] * 8.0,
            (ports < _ASSIGNED_FROM) * 4.0,
            (ports % 2) * 2.0,
            (ports < ports[:, ::-1]) * 1.0,
        ]
    ).sum(axis=0)
    sides: NDArray[np.intp] = np.argmax(rank, axis=1)
    return sides


def _features(at: _Floats, ids: _Ints, server: NDArray[np.intp], now: float) -> Matrix:
    client = 1 - server
    every = np.arange(len(at))

    def total(side: NDArray[np.intp], of: int) -> _Floats:
        chosen: _Floats = at[every, _At.TOTAL + 2 * side + of]
        return chosen

    up_packets, up, down_packets, down = total(client, 0), total(client, 1), total(server, 0), total(server, 1)
    intervals = np.maximum(at[:, _At.INTERVALS], 1.0)
    service, service_host, client_host = (
        _side(ids, _Id.END, server),
        _side(ids, _Id.HOST, server),
        _side(ids, _Id.HOST, client),
    )
    hosts = int(ids[:, _Id.HOST : _Id.HOST + 2].max()) + 1
    pair = np.minimum(service_host, client_host) * hosts + np.maximum(service_host, client_host)
    _, pair = np.unique(pair, return_inverse=True)
    both_hosts = np.concatenate([service_host, client_host])
    conversations = np.bincount(both_hosts, minlength=hosts)
    idle = np.bincount(both_hosts, np.tile(at[:, _At.IS_IDLE], 2), minlength=hosts)
    peers = _distinct(both_hosts, np.concatenate([client_host, service_host]), hosts)
    serves, uses = _distinct(service_host, service, hosts), _distinct(client_host, service, hosts)
    low = _side(ids, _Id.PORT, server) < _ASSIGNED_FROM
    low_serves = _distinct(service_host[low], service[low], hosts) if low.any() else np.zeros(hosts)
    both_packets = np.tile(up_packets + down_packets, 2)
    packets = np.maximum(np.bincount(both_hosts, both_packets, minlength=hosts), 1.0)
    packet_bytes = np.bincount(both_hosts, np.tile(up + down, 2), minlength=hosts) / packets
    clients = _distinct(service, client_host, int(service.max()) + 1)
    hub = np.zeros(hosts)
    np.maximum.at(hub, client_host, clients[service])
    per_service = np.bincount(service)[service]
    service_up, service_down = np.bincount(service, up)[service], np.bincount(service, down)[service]
    service_packets = np.bincount(service, up_packets + down_packets)[service]
    columns = (
        _log(up),
        _log(down),
        up / np.maximum(up_packets, 1.0),
        down / np.maximum(down_packets, 1.0),
        _log(up) - _log(down),
        _log(now - at[:, _At.SINCE]),
        at[:, _At.BUSY] / intervals,
        _log(at[:, _At.LARGEST]) - _log((up + down) / intervals),
        _log(at[:, _At.GAP]),
        _log(_side(ids, _Id.PORT, server)),
        _log(_side(ids, _Id.PORT, client)),
        ids[:, _Id.IS_UDP],
        _log(per_service),
        _log(clients[service]),
        _log(service_up + service_down),
        _log(service_up) - _log(service_down),
        (service_up + service_down) / np.maximum(service_packets, 1.0),
        np.bincount(service, at[:, _At.IS_IDLE])[service] / per_service,
        *(
            column
            for host in (service_host, client_host)
            for column in (
                _log(serves[host]),
                _log(low_serves[host]),
                _log(peers[host]),
                _log(conversations[host]),
                idle[host] / conversations[host],
                packet_bytes[host],
                _log(hub[host]),
            )
        ),
        _log(uses[client_host]),
        _log(np.bincount(pair)[pair]),
        _log(np.bincount(pair, up + down)[pair]),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _log(values: NDArray[np.floating] | NDArray[np.integer]) -> _Floats:
    logarithms: _Floats = np.log2(1.0 + np.maximum(values, 0.0))
    return logarithms


def _distinct(groups: _Ints, values: _Ints, length: int) -> _Ints:
    """The number of distinct values in each group."""
    most = int(values.max()) + 1
    return np.bincount(np.unique(groups * most + values) // most, minlength=length)
