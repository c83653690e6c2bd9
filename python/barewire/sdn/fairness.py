# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Max-min fair rates of flows that share links, by progressive filling: the long-term sharing of TCP.

A flow's narrowest link is the one with the smallest equal share. A link that is the narrowest of all its flows is a
bottleneck: its flows get that share and are finished, and the other links keep the remaining capacity. All bottlenecks
of a round are processed at once, so thousands of flows need a few rounds of array operations.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]

# Relative difference below which shares are equal, so that rounding does not add rounds.
_EQUAL = 1e-9


def max_min(flows: Sequence[NDArray[np.intp]], capacity: Rates, shares: Sequence[Rates | None] | None = None) -> Rates:
    """Return each flow's rate, in the unit of `capacity`.

    `flows` are the numbers of the links that each crosses (at least one, none twice); `capacity` is what each link
    can carry, above 0. `shares` are what part of its rate each flow sends over each of its links, above 0; None: all.
    ValueError otherwise.
    """
    if not len(flows):
        return np.zeros(0)
    hops = np.array([len(links) for links in flows])
    if not hops.all():
        raise ValueError("a flow crosses no link; every flow needs at least one")
    links = np.concatenate(flows)
    if not (capacity[links] > 0).all():
        raise ValueError("a flow crosses a link without capacity; take such links out of its paths")
    weights = None if shares is None else weights_of(flows, shares)
    if weights is not None and not (weights > 0).all():
        raise ValueError("a flow sends nothing over a link that it crosses; leave the link out")
    flow_of = np.repeat(np.arange(len(flows)), hops)
    starts = np.concatenate(([0], np.cumsum(hops)[:-1]))
    rates = np.zeros(len(flows))
    remaining = capacity.astype(np.float64).copy()
    open_flows = np.ones(len(flows), dtype=bool)
    while open_flows.any():
        still = open_flows[flow_of]
        crossing = np.bincount(links[still], minlength=len(remaining))
        load: NDArray[Any] = crossing
        if weights is not None:
            load = np.bincount(links[still], weights=weights[still], minlength=len(remaining))
        share = np.divide(remaining, load, out=np.full(len(remaining), np.inf), where=crossing > 0)
        narrowest = np.minimum.reduceat(share[links], starts)
        agrees = still & (narrowest[flow_of] >= share[links] * (1 - _EQUAL))
        agreeing = np.bincount(links[agrees], minlength=len(remaining))
        bottleneck = (agreeing == crossing) & (crossing > 0)
        done = open_flows & np.logical_or.reduceat(bottleneck[links], starts)
        rates[done] = narrowest[done]
        taken = done[flow_of]
        sent = rates[flow_of[taken]]
        if weights is not None:
            sent *= weights[taken]
        remaining -= np.bincount(links[taken], weights=sent, minlength=len(remaining))
        np.maximum(remaining, 0, out=remaining)
        open_flows &= ~done
    return rates


def weights_of(flows: Sequence[NDArray[np.intp]], shares: Sequence[Rates | None]) -> Rates:
    """Return the shares of all flows' links in one array, 1 where a flow has none."""
    return np.concatenate([np.ones(len(of)) if part is None else part for of, part in zip(flows, shares, strict=True)])
