# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Findings of a check, and what they blame: values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from barewire.cluster.tournament import Pair


class Direction(StrEnum):
    """Seen from the host."""

    TRANSMIT = "transmit"
    RECEIVE = "receive"
    BOTH = "both"


class Kind(StrEnum):
    """What is wrong."""

    UNREACHABLE = "unreachable"
    DEAD = "dead port"
    LOSS = "port that drops"
    DUPLEX = "duplex mismatch"
    SLOW = "slow port"
    MTU = "MTU mismatch"
    PATH_MTU = "frames too long for the path"
    NO_JUMBO = "switch without jumbo frames"
    REORDERING = "reordering"
    LATENCY = "slow answers"
    STARVED = "shared cores"
    CLOCKED_DOWN = "slow cores"
    OVERLOAD = "switch overloaded"
    NEGOTIATION = "link negotiation"


# Found by computing, not by sending.
OF_CORES = (Kind.STARVED, Kind.CLOCKED_DOWN)


@dataclass(frozen=True)
class Blame:
    """The smallest part of the network that explains bad paths: a host's port, all of them, or a pair's path."""

    host: str | None
    direction: Direction | None
    paths: tuple[Pair, ...]

    @property
    def is_everywhere(self) -> bool:
        """Whether it is the network as a whole."""
        return self.host is None and self.direction is None and len(self.paths) > 2

    @property
    def subject(self) -> str:
        """What it names."""
        if self.host is not None:
            return self.host
        if self.is_everywhere:
            return "network"
        first, second = self.paths[0]
        return f"{first} – {second}" if len(self.paths) == 2 else f"{first} → {second}"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, in words, with what to do about it and the numbers behind it."""

    kind: Kind
    subject: str
    text: str
    fix: str
    direction: Direction | None = None
    paths: tuple[Pair, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_of_path(self) -> bool:
        """Whether it blames one pair's path, and no port."""
        return len(self.paths) in (1, 2) and self.subject not in {end for path in self.paths for end in path}

    def to_json(self) -> dict[str, Any]:
        """Return it for --json."""
        return asdict(self)
