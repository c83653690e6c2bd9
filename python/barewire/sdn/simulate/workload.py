# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulated workloads: jobs that start transfers, and are notified of finished ones. They have no clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from barewire.sdn.flow import FlowKey, Pattern

HPC, BIG_DATA = "mpi", "bigdata"


@dataclass(frozen=True)
class Connection:
    """A connection between two hosts for many transfers, in both directions.

    `active` is the side that opened it. For TCP both directions are placed when it opens; LLC flows have no ports and
    no opening, so each direction is placed with its first transfer. `identification` is the IPv4 identification of the
    first packet; the reply's is 0, as in Linux.
    """

    active: str
    passive: str
    profile: str
    protocol: str = "tcp"
    active_port: int = 0
    passive_port: int = 0
    identification: int = 0

    def key(self, source: str) -> FlowKey:
        """The flow from this side to the other."""
        if source == self.active:
            return FlowKey(source, self.passive, self.protocol, self.active_port, self.passive_port)
        return FlowKey(source, self.active, self.protocol, self.passive_port, self.active_port)


@dataclass(frozen=True)
class Transfer:
    """Bytes that one side of a connection sends, beginning after a delay. `tag` identifies it for the job."""

    connection: Connection
    source: str
    size_bytes: float
    tag: Any
    delay_s: float = 0.0
    key: FlowKey = field(init=False)

    def __post_init__(self) -> None:
        """Compute the flow key once."""
        object.__setattr__(self, "key", self.connection.key(self.source))


class Workload(Protocol):
    """A job, or several."""

    @property
    def finished(self) -> bool:
        """Whether the workload is finished."""
        ...

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Announced patterns: the current one, then the following ones; the same object until they change."""
        ...

    def begin(self) -> Sequence[Transfer]:
        """Return the first transfers."""
        ...

    def arrived(self, transfer: Transfer, now_s: float) -> Sequence[Transfer]:
        """Return the transfers that start because this one has finished."""
        ...


class Job(Workload, Protocol):
    """A job that can be one of several at once."""

    hosts: list[str]
    finished_s: float

    @property
    def has_sent(self) -> bool:
        """Whether everything that it sends at once has arrived, and nothing more has begun."""
        ...
