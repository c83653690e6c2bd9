# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The load of placed flows on links, and of links on paths, as arrays. A flow that does not send is no load."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barewire.sdn.flow import View
from barewire.topology import Network, Path, Port
from barewire.topology.paths import PathSet, PortValues

Values = NDArray[np.float64]

# A flow below this share of a link's rate is idle, such as a connection that only keeps itself alive: it is no load. A
# new flow is none until it has had the time to send.
IDLE_SHARE, JUDGED_AFTER_S = 0.01, 1.0


def crossing(view: View) -> Mapping[Port, float]:
    """Number of placed flows that leave through each port, without idle ones."""
    if view.crossing is not None:
        return view.crossing
    return Counter(port for placed in view.placed.values() if not placed.is_idle for port in placed.path)


def crossing_of_profiles(view: View) -> Mapping[str, Mapping[Port, float]]:
    """Number of placed flows of each profile that leave through each port, without idle ones."""
    if view.crossing_of_profiles is not None:
        return view.crossing_of_profiles
    counted: defaultdict[str, Counter[Port]] = defaultdict(Counter)
    for placed in view.placed.values():
        if not placed.is_idle:
            counted[placed.flow.profile].update(placed.path)
    return counted


def is_idle(rate_byte_s: float, age_s: float, network: Network) -> bool:
    """Return whether a flow of a measured rate is idle."""
    return age_s >= JUDGED_AFTER_S and rate_byte_s < IDLE_SHARE * network.usual_rate_bit_s / 8


def on_paths(paths: Sequence[Path], *by_port: Mapping[Port, float]) -> list[Values]:
    """Return the values of each path's ports, of shape (paths, hops), for each mapping; 0 where it has none.

    The paths have equal lengths. Values in arrays (`PortValues`) are not looked up port by port.
    """
    rows: Any = None
    found: list[Values] = []
    for values in by_port:
        if isinstance(values, PortValues) and isinstance(paths, PathSet) and values.paths is paths.paths:
            rows = paths.rows() if rows is None else rows
            found.append(values.array[rows].astype(np.float64))
        else:
            found.append(np.array([[values.get(port, 0.0) for port in path] for path in paths], dtype=np.float64))
    return found


def rates_on(paths: Sequence[Path], view: View) -> Values:
    """Return the rate of each path's ports in bytes a second, of shape (paths, hops)."""
    if isinstance(paths, PathSet):
        rates: Values = paths.paths.rate_byte_s[paths.rows()]
        return rates
    return np.array([[view.network.rate_byte_s(port) for port in path] for path in paths])


def first_smallest(keys: Values) -> int:
    """Return the first of the rows, of shape (rows, columns), that compare smallest from left to right."""
    rows: list[list[float]] = keys.tolist()
    return rows.index(min(rows))
