# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results cached by object identity: networks and patterns are values, but too large to hash each time."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from barewire.topology import Network
from barewire.topology.paths import Paths

Answer = TypeVar("Answer")

# Enough for one network and the patterns of a few jobs.
_REMEMBERED = 64


def memoized(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Cache a pure function by the identity of its arguments."""
    return remembering(_REMEMBERED, function)


def remembering(most: int, function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Cache the latest `most` results of a pure function by the identity of its arguments."""
    known: dict[tuple[int, ...], tuple[tuple[object, ...], Answer]] = {}
    # A plan is made in a thread beside the controller's.
    lock = threading.Lock()

    @wraps(function)
    def ask(*arguments: object) -> Answer:
        key = tuple(map(id, arguments))
        if (found := known.get(key)) is not None:
            return found[1]
        answer = function(*arguments)
        with lock:
            if len(known) >= most:
                del known[next(iter(known))]
            # A reference to the arguments keeps their ids from being reused.
            known[key] = (arguments, answer)
        return answer

    return ask


@memoized
def paths_of(network: Network) -> Paths:
    """Return the shortest paths of a network."""
    return Paths(network)
