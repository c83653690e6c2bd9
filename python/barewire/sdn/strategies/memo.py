# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results cached by object identity: networks and patterns are values, but too large to hash each time."""

import threading
from collections.abc import Callable, Sized
from dataclasses import fields, is_dataclass
from functools import partial, update_wrapper
from typing import Generic, TypeVar

from barewire.topology import Network
from barewire.topology.paths import Paths

Answer = TypeVar("Answer")

# Enough for one network and the patterns of a few jobs.
_REMEMBERED = 64
# Networks whose paths are remembered: those of an experiment. In a fat-tree of 48-port switches they take 100 MB.
_NETWORKS = 8
# Pairs of hosts, ports and the like in all results and their arguments, of 100 to 300 bytes each.
ENTRIES_MAX = 1_000_000


class Remembering(Generic[Answer]):
    """A pure function with its latest `most` results, by the identity of its arguments.

    The results and their arguments have at most `entries_max` entries beside those of the latest result, which is
    always kept.
    """

    def __init__(self, most: int, function: Callable[..., Answer], entries_max: int = ENTRIES_MAX) -> None:
        """Begin without results."""
        update_wrapper(self, function)
        self._most, self._function, self._entries_max = most, function, entries_max
        # By identity, how many remembered calls have this argument or result, and its entries; and the sum of these.
        self._held: dict[int, tuple[int, int]] = {}
        self._entries = 0
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], Answer]] = {}
        # A plan is made in a thread beside the controller's; jobs that ask for their turn, in others.
        self._lock = threading.Lock()
        # Results that are being computed, each with the lock that others wait at.
        self._computed: dict[tuple[int, ...], threading.Lock] = {}

    def __call__(self, *arguments: object) -> Answer:
        """Return the result, which is computed if it is not remembered: once, whoever else asks meanwhile."""
        key = tuple(map(id, arguments))
        if (found := self._known.get(key)) is not None:
            return found[1]
        with self._lock:
            computing = self._computed.setdefault(key, threading.Lock())
        with computing:
            if (found := self._known.get(key)) is not None:
                return found[1]
            try:
                answer = self._function(*arguments)
                with self._lock:
                    self._remember(key, arguments, answer)
            finally:
                with self._lock:
                    self._computed.pop(key, None)
        return answer

    def known(self, *arguments: object) -> Answer | None:
        """Return the result if it is remembered."""
        found = self._known.get(tuple(map(id, arguments)))
        return None if found is None else found[1]

    def _remember(self, key: tuple[int, ...], arguments: tuple[object, ...], answer: Answer) -> None:
        # A reference to the arguments keeps their ids from being reused.
        self._known[key] = (arguments, answer)
        self._hold(1, *arguments, answer)
        latest = sum(self._held[one][1] for one in {*key, id(answer)})
        while len(self._known) > self._most or self._entries - latest > self._entries_max:
            before, oldest = self._known.pop(next(iter(self._known)))
            self._hold(-1, *before, oldest)

    def _hold(self, change: int, *values: object) -> None:
        """Count each value once, however many results share it."""
        for value in values:
            holders, size = self._held.pop(id(value), (0, 0))
            self._entries -= size
            if holders + change:
                size = size or _entries_of(value)
                self._held[id(value)] = holders + change, size
                self._entries += size


def _entries_of(value: object) -> int:
    if is_dataclass(value):
        return sum(_entries_of(getattr(value, field.name)) for field in fields(value))
    return max(len(value), 1) if isinstance(value, Sized) else 1


def memoized(function: Callable[..., Answer]) -> Remembering[Answer]:
    """Cache a pure function by the identity of its arguments."""
    return Remembering(_REMEMBERED, function)


@partial(Remembering, _NETWORKS)
def paths_of(network: Network) -> Paths:
    """Return the shortest paths of a network."""
    return Paths(network)
