# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What measured flows would send if only their hosts' links limited them. Source: Al-Fares et al. 2010 (Hedera)."""

from collections.abc import Sequence

import numpy as np

from barewire.sdn.fairness import max_min
from barewire.sdn.flow import FlowKey, Placed
from barewire.topology import Network

_LARGE = 0.1


def is_large(key: FlowKey, placed: Placed, network: Network) -> bool:
    """Return whether a flow sends at least a tenth of its host's rate."""
    return placed.rate_byte_s >= _LARGE * _rate_of(network, key.source)


def natural_demands(network: Network, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return each flow's rate, in bytes a second, if limited only by hosts' links."""
    numbers: dict[tuple[str, str], int] = {}
    flows = [
        np.array([numbers.setdefault(("from", source), len(numbers)), numbers.setdefault(("to", to), len(numbers))])
        for source, to in pairs
    ]
    capacity = np.array([_rate_of(network, host) for _, host in numbers])
    return [float(rate) for rate in max_min(flows, capacity)]


def _rate_of(network: Network, host: str) -> float:
    ports = network.ports.get(host, ())
    return network.rate_byte_s(ports[0]) if ports else network.usual_rate_bit_s / 8
