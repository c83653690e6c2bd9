# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The load of placed flows on links: number and rate."""

from collections import Counter
from collections.abc import Mapping

from barewire.sdn.flow import View
from barewire.topology import Port


def crossing(view: View) -> Mapping[Port, int]:
    """Number of placed flows that leave through each port."""
    if view.crossing is not None:
        return view.crossing
    return Counter(port for placed in view.placed.values() for port in placed.path)
