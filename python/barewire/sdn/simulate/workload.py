# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is simulated: jobs that say which transfers begin now, and are told which arrived. No clock of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from barewire.sdn.flow import FlowKey, Pattern

HPC, BIG_DATA = "mpi", "bigdata"


@dataclass(frozen=True)
class Connection:
    """Both directions between two hosts, which stay for many transfers.

    `active` is the side that opened it. Of TCP both directions are placed when it opens; LLC has no ports and no
    opening, so each direction is placed with its first transfer. `identification` is the IPv4 identification of the
    first packet; the answer's is 0, as Linux has it.
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
    """Bytes that one side of a connection sends, beginning after a delay. `tag` is the job's own name for it."""

    connection: Connection
    source: str
    size_bytes: float
    tag: Any
    delay_s: float = 0.0
    key: FlowKey = field(init=False)

    def __post_init__(self) -> None:
        """Know the flow once."""
        object.__setattr__(self, "key", self.connection.key(self.source))


class Workload(Protocol):
    """A job, or several."""

    @property
    def finished(self) -> bool:
        """Whether all is done that is waited for."""
        ...

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """What is announced: the present pattern, then those that follow; the same object while nothing changes."""
        ...

    def begin(self) -> Sequence[Transfer]:
        """Return the first transfers."""
        ...

    def arrived(self, transfer: Transfer, now_s: float) -> Sequence[Transfer]:
        """Return what begins because this has arrived."""
        ...
