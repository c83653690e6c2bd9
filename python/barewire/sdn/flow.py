# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The input of strategies: a flow, placed flows, and the network's load. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from barewire.topology import Network, Path, Port

DEFAULT_PROFILE = "default"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
# Concurrent flows of one step: (source host, destination host) to bytes.
Pattern = Mapping[tuple[str, str], int]


class FlowKey(NamedTuple):
    """One direction of a conversation, as matched by a switch's rule. A tuple, because its hash is needed very often.

    `protocol` is tcp, udp or ip (any other) over IPv4, tcp6, udp6 or ip6 over IPv6, or llc (length frames and EtherType
    0x8870 between two MAC addresses). The ports are TCP's or UDP's, 0 for other protocols, because OpenFlow cannot
    match SAPs. Hosts stand for all their addresses, and frames for those in any VLAN.
    """

    source: str
    destination: str
    protocol: str = "tcp"
    source_port: int = 0
    destination_port: int = 0

    @property
    def transport(self) -> str:
        """The protocol regardless of the version of IP: tcp, udp, ip or llc."""
        return self.protocol.removesuffix("6")

    @property
    def has_ports(self) -> bool:
        """Whether the ports mean something."""
        return self.transport in ("tcp", "udp")

    def reversed(self) -> "FlowKey":
        """Return the other direction of the conversation."""
        return FlowKey(self.destination, self.source, self.protocol, self.destination_port, self.source_port)


@dataclass(frozen=True)
class Flow:
    """A flow to be placed.

    `identification` is the IPv4 identification of its first packet, which the published ECMP uses; IPv6 has none.
    `volume_bytes` is announced or measured, None if unknown.
    """

    key: FlowKey
    profile: str = DEFAULT_PROFILE
    identification: int = 0
    volume_bytes: int | None = None


@dataclass(frozen=True)
class Placed:
    """A placed flow: its start, the end of its path's reservation (0: none), and its measured rate in bytes/s.

    `is_idle` means that it was measured, and sends next to nothing.
    """

    flow: Flow
    path: Path
    since_s: float
    reserved_until_s: float = 0.0
    rate_byte_s: float = 0.0
    is_idle: bool = False


@dataclass(frozen=True)
class View:
    """The network at one moment of a monotonic clock, in seconds.

    `load_byte_s` is the rate that each switch port sent by the last statistics, `received_byte_s` the received rate.
    `patterns` are the announced sets of concurrent flows: (source host, destination host) to bytes. The first is the
    current pattern of all jobs together; others, which only a simulator gives, follow. Patterns are immutable values.
    `crossing` is the number of placed flows, without idle ones, that leave through each port, if counted; None: count
    them in `placed`. `crossing_of_profiles` is the same for each profile.
    `fixed` are placed flows of other strategies, which load links but must not move. `reservations` are reserved paths
    with their ends, also of finished flows; endless ones are in `placed` only. `reserved`, if kept, has the latest end
    of each list of switches.
    """

    network: Network
    now_s: float
    placed: Mapping[FlowKey, Placed] = field(default_factory=dict)
    load_byte_s: Mapping[Port, float] = field(default_factory=dict)
    received_byte_s: Mapping[Port, float] = field(default_factory=dict)
    patterns: tuple[Pattern, ...] = ()
    crossing: Mapping[Port, float] | None = None
    crossing_of_profiles: Mapping[str, Mapping[Port, float]] | None = None
    fixed: frozenset[FlowKey] = frozenset()
    reservations: Mapping[Path, float] = field(default_factory=dict)
    reserved: Mapping[tuple[str, ...], float] | None = None

    def snapshot(self) -> "View":
        """Return a copy for another thread: it stays as it is while flows come and go."""
        of_profiles = self.crossing_of_profiles
        if of_profiles is not None:
            of_profiles = {name: _copy(crossing) for name, crossing in of_profiles.items()}
        return replace(
            self,
            placed=_copy(self.placed),
            load_byte_s=_copy(self.load_byte_s),
            received_byte_s=_copy(self.received_byte_s),
            crossing=None if self.crossing is None else _copy(self.crossing),
            crossing_of_profiles=of_profiles,
            reservations=_copy(self.reservations),
            reserved=None,
        )


def _copy(mapping: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    # Key by key, a copy of 10,000 flows would take 6 ms.
    return mapping.copy() if isinstance(mapping, dict | MappingProxyType) else dict(mapping)
