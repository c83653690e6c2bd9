# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Answers remembered for the same objects: networks and patterns are values, but too large to be hashed each time."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from barewire.topology import Network
from barewire.topology.paths import Paths

Answer = TypeVar("Answer")

# A controller sees one network, and steps through the patterns of a few jobs.
_REMEMBERED = 64


def remembered(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Let a pure function answer at once when it is asked again about the very same objects."""
    known: dict[tuple[int, ...], tuple[tuple[object, ...], Answer]] = {}

    @wraps(function)
    def ask(*arguments: object) -> Answer:
        key = tuple(map(id, arguments))
        if key not in known:
            answer = function(*arguments)
            if len(known) >= _REMEMBERED:
                del known[next(iter(known))]
            # Holding the arguments keeps their ids theirs.
            known[key] = (arguments, answer)
        return known[key][1]

    return ask


@remembered
def paths_of(network: Network) -> Paths:
    """Return the shortest paths of a network."""
    return Paths(network)
