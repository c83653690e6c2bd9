# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A path chosen hop by hop, as switches choose that each know only their own ports."""

from collections.abc import Callable, Sequence

from barewire.topology import Path, Port


def walk(paths: Sequence[Path], choose: Callable[[str, int], int]) -> Path:
    """Follow the paths (of equal length) and, wherever they part, take the way that `choose(switch, ways)` numbers."""
    left = list(paths)
    for hop in range(len(left[0])):
        ways: dict[Port, list[Path]] = {}
        for path in left:
            ways.setdefault(path[hop], []).append(path)
        if len(ways) > 1:
            left = list(ways.values())[choose(left[0][hop].node, len(ways))]
    return left[0]
