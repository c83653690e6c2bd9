# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A path chosen hop by hop, as switches choose that each know only their own ports."""

from collections.abc import Callable, Sequence

from barewire.topology import Path, Port


def walk(paths: Sequence[Path], choose: Callable[[str, int], int]) -> Path:
    """Follow the paths (of equal length); wherever they part, take the next hop that `choose(switch, hops)` numbers."""
    left = list(paths)
    for hop in range(len(left[0])):
        next_hops: dict[Port, list[Path]] = {}
        for path in left:
            next_hops.setdefault(path[hop], []).append(path)
        if len(next_hops) > 1:
            left = list(next_hops.values())[choose(left[0][hop].node, len(next_hops))]
    return left[0]
