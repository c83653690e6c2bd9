# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What every strategy is: no clock, no I/O, no memory of its own; all that it may know is in its arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barewire.sdn.flow import Flow, FlowKey, View
from barewire.topology import Path


@dataclass(frozen=True)
class Placement:
    """A strategy's answer: the path, how long it is reserved in seconds, and why in a few words.

    A reservation of 0 is none, an infinite one lasts as long as its flow; any other outlives a flow that ends before.
    """

    path: Path
    reserve_s: float = 0.0
    reason: str = ""


class Strategy(Protocol):
    """A plug-in. `period_s` is how often `rearrange` is asked; 0 for a strategy that leaves flows where they are."""

    @property
    def name(self) -> str:
        """What a policy and the command line call it."""
        ...

    @property
    def period_s(self) -> float:
        """How often `rearrange` is asked, in seconds."""
        ...

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Choose one of the shortest paths (at least one, in their fixed order) for a new flow."""
        ...

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Return new paths for those placed flows that shall move; asked periodically and when patterns change."""
        ...
