# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The load of placed flows on links: the number of those that send."""

from collections import Counter
from collections.abc import Mapping

from barewire.sdn.flow import View
from barewire.topology import Network, Port

# A flow below this share of a link's rate is idle, such as a connection that only keeps itself alive: it is no load. A
# new flow is none until it has had the time to send.
IDLE_SHARE, JUDGED_AFTER_S = 0.01, 1.0


def crossing(view: View) -> Mapping[Port, int]:
    """Number of placed flows that leave through each port, without idle ones."""
    if view.crossing is not None:
        return view.crossing
    return Counter(port for placed in view.placed.values() if not placed.is_idle for port in placed.path)


def is_idle(rate_byte_s: float, age_s: float, network: Network) -> bool:
    """Return whether a flow of a measured rate is idle."""
    return age_s >= JUDGED_AFTER_S and rate_byte_s < IDLE_SHARE * network.usual_rate_bit_s / 8
