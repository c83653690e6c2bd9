# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What strategies know: a flow, the flows that are placed, and what the network carries. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from barewire.topology import Network, Path, Port

DEFAULT_PROFILE = "default"

# Simultaneous flows of one step: (source host, destination host) to bytes.
Pattern = Mapping[tuple[str, str], int]


@dataclass(frozen=True, order=True)
class FlowKey:
    """One direction of a conversation, as a rule of a switch matches it.

    `protocol` is tcp, udp, ip (any other IPv4) or llc (length frames and EtherType 0x8870 between two MAC addresses).
    The ports are TCP's or UDP's, 0 for the others: OpenFlow matches no SAP.
    """

    source: str
    destination: str
    protocol: str = "tcp"
    source_port: int = 0
    destination_port: int = 0


@dataclass(frozen=True)
class Flow:
    """A flow that wants a path.

    `identification` is the IPv4 identification of its first packet, which the published ECMP uses. `volume_bytes` is
    what was announced or measured, None if nobody knows.
    """

    key: FlowKey
    profile: str = DEFAULT_PROFILE
    identification: int = 0
    volume_bytes: int | None = None


@dataclass(frozen=True)
class Placed:
    """A flow that has a path: since when, until when it reserves it (0: not), and its measured rate in bytes/s."""

    flow: Flow
    path: Path
    since_s: float
    reserved_until_s: float = 0.0
    rate_byte_s: float = 0.0


@dataclass(frozen=True)
class View:
    """The network at one moment of a monotonic clock, in seconds.

    `load_byte_s` is what each switch port sent a second by the last statistics, `received_byte_s` what it received.
    `patterns` are the announced sets of simultaneous flows: (source host, destination host) to bytes. The first is
    what all jobs together do now, the others what follows. A pattern is a value: who changes it makes a new one.
    `crossing` is how many placed flows leave through each port, for who keeps count; None: count them in `placed`.
    `fixed` are placed flows of other strategies, which load links but must stay. `reservations` are the paths that are
    reserved until when, also by flows that have gone.
    """

    network: Network
    now_s: float
    placed: Mapping[FlowKey, Placed] = field(default_factory=dict)
    load_byte_s: Mapping[Port, float] = field(default_factory=dict)
    received_byte_s: Mapping[Port, float] = field(default_factory=dict)
    patterns: tuple[Pattern, ...] = ()
    crossing: Mapping[Port, int] | None = None
    fixed: frozenset[FlowKey] = frozenset()
    reservations: Mapping[Path, float] = field(default_factory=dict)
