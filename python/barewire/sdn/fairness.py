# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Max-min fair rates of flows that share links, by filling: what TCP's sharing comes to in the long run.

Of each flow its narrowest link counts: the one that would give it the smallest equal share. A link on which all flows
agree that it is the narrowest is a bottleneck: its flows get that share and are done, the other links keep what is
left. All bottlenecks of a round are taken at once, so thousands of flows need a few rounds of array operations.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]

# Shares that differ by less are equal: rounding must not cut one round into many.
_EQUAL = 1e-9


def max_min(flows: Sequence[NDArray[np.intp]], capacity: Rates) -> Rates:
    """Return each flow's rate, in the unit of `capacity`.

    `flows` are the numbers of the links that each crosses (at least one, none twice); `capacity` is what each link
    can carry, above 0. ValueError otherwise.
    """
    if not len(flows):
        return np.zeros(0)
    hops = np.array([len(links) for links in flows])
    if not hops.all():
        raise ValueError("a flow crosses no link; every flow needs at least one")
    links = np.concatenate(flows)
    if not (capacity[links] > 0).all():
        raise ValueError("a flow crosses a link without capacity; take such links out of its paths")
    flow_of = np.repeat(np.arange(len(flows)), hops)
    starts = np.concatenate(([0], np.cumsum(hops)[:-1]))
    rates = np.zeros(len(flows))
    left = capacity.astype(np.float64).copy()
    open_flows = np.ones(len(flows), dtype=bool)
    while open_flows.any():
        still = open_flows[flow_of]
        crossing = np.bincount(links[still], minlength=len(left))
        share = np.divide(left, crossing, out=np.full(len(left), np.inf), where=crossing > 0)
        narrowest = np.minimum.reduceat(share[links], starts)
        agrees = still & (narrowest[flow_of] >= share[links] * (1 - _EQUAL))
        agreeing = np.bincount(links[agrees], minlength=len(left))
        bottleneck = (agreeing == crossing) & (crossing > 0)
        done = open_flows & np.logical_or.reduceat(bottleneck[links], starts)
        rates[done] = narrowest[done]
        taken = done[flow_of]
        left -= np.bincount(links[taken], weights=rates[flow_of[taken]], minlength=len(left))
        np.maximum(left, 0, out=left)
        open_flows &= ~done
    return rates
