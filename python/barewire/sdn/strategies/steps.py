# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Paths chosen hop by hop, like switches that know only their own ports."""

from collections.abc import Callable, Sequence

from barewire.topology import Path, Port
from barewire.topology.paths import PathSet


def walk(paths: Sequence[Path], choose: Callable[[str, int], int]) -> Path:
    """Follow the paths (of equal length); where they diverge, take next hop number `choose(switch, hops)`."""
    if isinstance(paths, PathSet):
        return paths.walk(choose)
    candidates = list(paths)
    for hop in range(len(candidates[0])):
        next_hops: dict[Port, list[Path]] = {}
        for path in candidates:
            next_hops.setdefault(path[hop], []).append(path)
        if len(next_hops) > 1:
            candidates = list(next_hops.values())[choose(candidates[0][hop].node, len(next_hops))]
    return candidates[0]
