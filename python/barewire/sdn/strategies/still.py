# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What strategies share that choose a path once: they leave flows where they are."""

from collections.abc import Mapping

from barewire.sdn.flow import FlowKey, View
from barewire.topology import Path


class Still:
    """A strategy's base whose flows never move."""

    @property
    def period_s(self) -> float:
        """Never asked."""
        return 0.0

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move nothing."""
        return {}
