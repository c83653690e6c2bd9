# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results cached by object identity: networks and patterns are values, but too large to hash each time."""

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar

from barewire.topology import Network
from barewire.topology.paths import Paths

Answer = TypeVar("Answer")

# Enough for one network and the patterns of a few jobs.
_REMEMBERED = 64


class Remembering(Generic[Answer]):
    """A pure function with its latest `most` results, by the identity of its arguments."""

    def __init__(self, most: int, function: Callable[..., Answer]) -> None:
        """Begin without results."""
        update_wrapper(self, function)
        self._most, self._function = most, function
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
                    if len(self._known) >= self._most:
                        del self._known[next(iter(self._known))]
                    # A reference to the arguments keeps their ids from being reused.
                    self._known[key] = (arguments, answer)
            finally:
                with self._lock:
                    self._computed.pop(key, None)
        return answer

    def known(self, *arguments: object) -> Answer | None:
        """Return the result if it is remembered."""
        found = self._known.get(tuple(map(id, arguments)))
        return None if found is None else found[1]


def memoized(function: Callable[..., Answer]) -> Remembering[Answer]:
    """Cache a pure function by the identity of its arguments."""
    return Remembering(_REMEMBERED, function)


@memoized
def paths_of(network: Network) -> Paths:
    """Return the shortest paths of a network."""
    return Paths(network)
