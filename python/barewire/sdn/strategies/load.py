# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What placed flows put on links: how many, and how much."""

from collections import Counter
from collections.abc import Mapping

from barewire.sdn.flow import View
from barewire.topology import Port


def crossing(view: View) -> Mapping[Port, int]:
    """How many placed flows leave through each port."""
    if view.crossing is not None:
        return view.crossing
    return Counter(port for placed in view.placed.values() for port in placed.path)
