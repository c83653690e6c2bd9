# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller's parameters, each with the reason for its value."""

from dataclasses import dataclass

from barewire.errors import WrongUse


@dataclass(frozen=True)
class Settings:
    """Settings of an operator; all durations in seconds."""

    # A flow without packets ends after 20 s, as published. A busy flow's rules outlive the controller: they have no
    # other time-out (published: every flow is placed again after 60 s). 0: never.
    idle_s: int = 20
    hard_s: int = 0
    # Rules of later switches expire this much later, so that packets forwarded by the first find them.
    margin_s: int = 5
    # Intervals of port and rule statistics; the published controller read ports every second.
    port_statistics_s: float = 1.0
    flow_statistics_s: float = 2.0
    # Interval of link probes; a link fails after three lost probes.
    probe_s: float = 1.0
    probes_lost: int = 3
    # A port without returning probes for this long leads to no switch: a round trip with margin.
    settle_s: float = 0.3
    # A failed link is used again after a second, doubled by each further failure within a minute.
    hold_first_s: float = 1.0
    hold_max_s: float = 60.0
    # A disconnected switch may still forward; after this time its links count as lost.
    switch_grace_s: float = 3.0
    # Time to drain packets from the old path of a moved flow: a full queue of a slow link.
    drain_s: float = 1.0
    # Packets that come up this long after installation mean that a flow's rules are wrong.
    reinstall_after_s: float = 1.0
    # Frames that a port may send up: in a burst, and per second. Beyond that its unmatched packets are dropped for a
    # second, then two … Allows 500 new flows a second through one port.
    frames_burst: int = 2000
    frames_per_s: int = 1000
    # Rules found at the start that form no complete path are deleted after this time.
    orphans_s: float = 10.0
    # Rate of ports behind shapers, which switches cannot report; None: as reported.
    link_rate_bit_s: int | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        for name in ("idle_s", "hard_s"):
            if not 0 <= getattr(self, name) <= 0xFFFF - self.margin_s:
                raise WrongUse(f"{name} is {getattr(self, name)}; give 0 (never) to {0xFFFF - self.margin_s} seconds")
        for name in ("port_statistics_s", "flow_statistics_s", "probe_s"):
            if not 0.05 <= getattr(self, name) <= 3600:
                raise WrongUse(f"{name} is {getattr(self, name)}; give 0.05 to 3600 seconds")
