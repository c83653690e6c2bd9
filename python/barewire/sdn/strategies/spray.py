# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spraying: labels in frames name paths, and senders that know them choose one for each frame.

The controller installs the rules of all labels once (`controller/labels.py`); no flow needs one. After Dixit et al.
2013 (random packet spraying), Bonato et al. 2024 (REPS: senders that recycle good labels), and Mudigonda et al. 2010
(SPAIN: paths named by VLANs).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from barewire.sdn.flow import Flow, View
from barewire.sdn.strategies.ecmp import Ecmp
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Spray(Ecmp):
    """Paths by label for senders that label their frames; flows without labels are placed as by `ecmp`."""

    name: ClassVar[str] = "spray"
    uses_labels: ClassVar[bool] = True

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Place what has no label: other protocols, connection set-up, senders that do not know labels."""
        return Placement(super().place(flow, paths, view).path, reason="no label: hash at each switch")


def uses_labels(strategy: Any) -> bool:
    """Return whether flows of this strategy may choose their path frame by frame, by labels."""
    return bool(getattr(strategy, "uses_labels", False))
