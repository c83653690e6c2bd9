# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results cached by object identity: networks and patterns are values, but too large to hash each time."""

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
    known: dict[tuple[int, ...], tuple[tuple[object, ...], Answer]] = {}

    @wraps(function)
    def ask(*arguments: object) -> Answer:
        key = tuple(map(id, arguments))
        if key not in known:
            answer = function(*arguments)
            if len(known) >= _REMEMBERED:
                del known[next(iter(known))]
            # A reference to the arguments keeps their ids from being reused.
            known[key] = (arguments, answer)
        return known[key][1]

    return ask


@memoized
def paths_of(network: Network) -> Paths:
    """Return the shortest paths of a network."""
    return Paths(network)
