# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The interface of strategies: no clock, no I/O, no state; all information is in the arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barewire.sdn.flow import Flow, FlowKey, View
from barewire.topology import Path

# The longest reservation with an end, as a rule's cookie can hold it.
RESERVE_MAX_S = 4094


@dataclass(frozen=True)
class Placement:
    """A strategy's choice: the path, its reservation in seconds, and a short reason.

    A reservation of 0 is none, an infinite one lasts as long as the flow keeps the path; any other, of at most
    RESERVE_MAX_S, may outlive the flow.
    """

    path: Path
    reserve_s: float = 0.0
    reason: str = ""


class Strategy(Protocol):
    """A plug-in. `period_s` is the period of `rearrange`; 0 for a strategy that never moves flows.

    It may have `prepare(network, patterns)`, which the controller calls in another thread before changed patterns are
    in a view, and when the network has changed, for results that take long and that it remembers. `place` is called in
    the controller's thread, possibly before that has ended: it must not wait for such a result.
    """

    @property
    def name(self) -> str:
        """Its name in policies and on the command line."""
        ...

    @property
    def period_s(self) -> float:
        """The period of `rearrange`, in seconds: at least 0.01, or 0."""
        ...

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Choose a path for a new flow: one of the shortest, which are at least one, in a fixed order; or another.

        Another must join the same hosts and enter no switch twice.
        """
        ...

    def rearrange(self, view: View) -> Mapping[FlowKey, Path]:
        """Return new paths for flows that should move; called periodically and when patterns change.

        The controller calls it in another thread, where `place` may run meanwhile; the view is a copy.
        """
        ...
