# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is known to change at a message size, and which of these explains a break point."""

from collections.abc import Iterable
from dataclasses import dataclass

from barewire.models.breakpoints import Break

# Message headers lie between a frame's payload, or an eager limit, and what a message can use of it.
HEADER_BYTES_MAX = 100
_ORDINALS = {1: "second", 2: "third", 3: "fourth"}


@dataclass(frozen=True)
class Limit:
    """A size above which something changes; messages may have up to `header_bytes` less, for headers within it."""

    name: str
    message_bytes: int
    header_bytes: int = 0

    def explains(self, point: Break) -> bool:
        """Return whether the change lies within the break's interval."""
        return point.low <= self.message_bytes and self.message_bytes - self.header_bytes < point.high


def frame_limits(mtu: int, header_bytes: int) -> list[Limit]:
    """Return the sizes that fill one, two and three frames; `header_bytes` of each are the protocol's."""
    payload_bytes = mtu - header_bytes
    return [
        Limit(f"a {_ORDINALS[frames]} frame", frames * payload_bytes, HEADER_BYTES_MAX)
        for frames in _ORDINALS
        if payload_bytes > 0
    ]


def cache_limits(caches_bytes: Iterable[tuple[str, int]]) -> list[Limit]:
    """Return the sizes at which a message fills half of a cache, or all of it: both copies share it."""
    limits = []
    for name, size in caches_bytes:
        limits += [Limit(f"half of the {name} cache", size // 2), Limit(f"the whole {name} cache", size)]
    return limits


def explanations(point: Break, limits: Iterable[Limit]) -> tuple[str, ...]:
    """Return the names of all limits that explain the break, the nearest first."""
    meeting = [limit for limit in limits if limit.explains(point)]
    meeting.sort(key=lambda limit: abs(limit.message_bytes - point.last_before))
    return tuple(limit.name for limit in meeting)
