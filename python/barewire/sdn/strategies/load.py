# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The load of placed flows on links: number and rate."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from barewire.sdn.flow import View
from barewire.topology import Port


def crossing(view: View) -> Mapping[Port, int]:
    """Number of placed flows that leave through each port, without idle ones."""
    if view.crossing is not None:
        return view.crossing
    return Counter(port for placed in view.placed.values() if not placed.is_idle for port in placed.path)


def crossing_of_profiles(view: View) -> Mapping[str, Mapping[Port, int]]:
    """Number of placed flows of each profile that leave through each port, without idle ones."""
    if view.crossing_of_profiles is not None:
        return view.crossing_of_profiles
    counted: defaultdict[str, Counter[Port]] = defaultdict(Counter)
    for placed in view.placed.values():
        if not placed.is_idle:
            counted[placed.flow.profile].update(placed.path)
    return counted
