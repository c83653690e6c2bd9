# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Equal-cost multipath: each switch hashes a flow's addresses and ports. Sources: RFC 2992; Hopps 2000.

The hash contains the switch's name as its basis. With one basis for all, or a linear hash (CRC, exclusive or), the
choices of one level would decide those of the next, and most links would stay unused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

from barewire.sdn.flow import Flow, FlowKey, View
from barewire.sdn.strategies.static import Static
from barewire.sdn.strategies.steps import walk
from barewire.sdn.strategies.strategy import Placement
from barewire.topology import Path


@dataclass(frozen=True)
class Ecmp(Static):
    """The baseline of data centres. `basis` changes all choices, to show the spread of results."""

    basis: int = 0
    name: ClassVar[str] = "ecmp"

    def place(self, flow: Flow, paths: Sequence[Path], view: View) -> Placement:
        """Take each switch's next hop by the hash of the 5-tuple, or of both addresses if there are no ports."""

        def choose(switch: str, hops: int) -> int:
            return hashed(self.basis, switch, flow.key) % hops

        return Placement(walk(paths, choose), reason="hash at each switch")


def hashed(basis: int, switch: str, key: FlowKey) -> int:
    """Return a switch's hash of a flow."""
    words = (key.source, key.destination, key.protocol, key.source_port, key.destination_port)
    text = "|".join(map(str, (basis, switch, *words)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
