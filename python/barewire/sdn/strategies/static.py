# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Base of strategies that choose a path once and never move flows."""

from collections.abc import Mapping

from barewire.sdn.flow import FlowKey, View
from barewire.topology import Path


class Static:
    """Base class of strategies without rearrangement."""

    @property
    def period_s(self) -> float:
        """Never."""
        return 0.0

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Move nothing."""
        return {}
