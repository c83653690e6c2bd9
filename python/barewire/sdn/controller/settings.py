# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller's parameters, each with why it is what it is, in one place."""

from dataclasses import dataclass

from barewire.errors import WrongUse


@dataclass(frozen=True)
class Settings:
    """What an operator may set; all durations in seconds."""

    # The published rules: a flow without packets leaves after 20 s, and each is placed anew after 60 s. 0: never.
    idle_s: int = 20
    hard_s: int = 60
    # Rules behind the first switch stay this much longer, so that a packet let in by the first finds them.
    margin_s: int = 5
    # How often ports and rules are counted; the published controller counted ports each second.
    port_statistics_s: float = 1.0
    flow_statistics_s: float = 2.0
    # Links are probed this often, and gone after three probes that did not arrive.
    probe_s: float = 1.0
    probes_lost: int = 3
    # A port without an answer to its probes for so long leads to no switch: a round trip, with room.
    settle_s: float = 0.3
    # A link that fell is trusted again after a second, each further fall within a minute doubles it.
    hold_first_s: float = 1.0
    hold_max_s: float = 60.0
    # A switch without a connection may go on forwarding; after this its links count as gone.
    switch_grace_s: float = 3.0
    # Packets under way on the old path of a moved flow: a full queue of a slow link drains in this.
    drain_s: float = 1.0
    # Packets that still come up from a laid flow so long after: its rules are not what they should be.
    relay_after_s: float = 1.0
    # Frames that a port may send up: in a burst, and a second. Beyond, what its rules do not know is dropped for a
    # second, then two … 500 new flows a second through one port fit.
    frames_burst: int = 2000
    frames_per_s: int = 1000
    # Broadcasts that a host may send to all others.
    broadcasts_burst: int = 50
    broadcasts_per_s: int = 10
    # Rules found in a switch at the start that belong to no whole path are deleted after this.
    orphans_s: float = 10.0
    # What ports are rated at, if the switches do not know better (shaped links); None: as they say.
    link_rate_bit_s: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("idle_s", "hard_s"):
            if not 0 <= getattr(self, name) <= 0xFFFF - self.margin_s:
                raise WrongUse(f"{name} is {getattr(self, name)}; give 0 (never) to {0xFFFF - self.margin_s} seconds")
        for name in ("port_statistics_s", "flow_statistics_s", "probe_s"):
            if not 0.05 <= getattr(self, name) <= 3600:
                raise WrongUse(f"{name} is {getattr(self, name)}; give 0.05 to 3600 seconds")
