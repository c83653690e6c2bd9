# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How the tenants of one direction of a link share its rate: guarantees, ceilings, and what is idle is lent. Pure.

OpenFlow's meters only limit, so a guarantee is what the others may not use:

    reserve     of a tenant: what it sends, with a margin; its whole guarantee as soon as it wants more than its reserve
    limit       of a tenant that wants more than its guarantee: its reserve and a part of what nobody reserves

A tenant that is alone is not limited unless it floods, because TCP loses throughput at a meter. Reserves follow the
last count, so a guarantee holds at once; limits follow the mean of several, so a burst of messages meets none.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean

# Of the link's rate: limits leave this free, so that a tenant's first frames pass beside a flood and are noticed.
SLACK = 0.03
# A tenant is active if it sent more than this fraction of the link's rate within `HOLD_S`.
ACTIVE = 0.01
# Above this fraction of the link's rate in total the link is contended.
CONTENDED = 0.9
# A tenant's use is the mean of this many counts.
COUNTS = 3
# A tenant floods if what it sends would leave a backlog of this duration and size at a link of `FLOODED` times the
# link's rate. TCP fills the queue of a port, and then offers little more than the link carries, so its backlog drains.
FLOODED = 1.15
BACKLOG_S, BACKLOG_MIN_BIT = 1.0, 8 * 512 * 1024
# A reserve has this margin over what was sent; a tenant that sends more than `_PRESSING` of its reserve wants more.
_MARGIN, _PRESSING = 1.2, 0.9
# A reserve shrinks when less was sent for this time.
HOLD_S = 3.0
# A tenant is limited when it exceeds its guarantee by this factor, and may grow by the second one from count to count.
_OVER, _GROWTH = 1.05, 1.1
# The weight, for what is idle, of tenants without a guarantee.
_WEIGHT = 0.05


@dataclass
class Use:
    """A tenant's use of one direction: its recent demands (time, bit/s), its reserve and its limit in bit/s.

    `backlog_bit` is what it has sent beyond `FLOODED` times the link's rate.
    """

    share: float
    ceiling: float
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    reserve_bit_s: float = 0.0
    raised_s: float = -math.inf
    limit_bit_s: float | None = None
    backlog_bit: float = 0.0

    @property
    def mean_bit_s(self) -> float:
        """What it sent by the mean of the last counts, whether or not it got through."""
        last = [demand for _, demand in islice(reversed(self.recent), COUNTS)]
        return fmean(last) if last else 0.0

    def counted(self, now: float, demand_bit_s: float, rate_bit_s: float) -> None:
        """Follow its demand since the last count with its reserve and its backlog.

        Without a count for `HOLD_S` nothing is known of a backlog, and it begins anew.
        """
        while self.recent and self.recent[0][0] < now - HOLD_S:
            self.recent.popleft()
        if self.recent:
            grown_bit = (demand_bit_s - FLOODED * rate_bit_s) * (now - self.recent[-1][0])
            # A flood is over soon after its end, however long it was.
            self.backlog_bit = min(max(self.backlog_bit + grown_bit, 0.0), 2 * _backlog_max_bit(rate_bit_s))
        else:
            self.backlog_bit = 0.0
        self.recent.append((now, demand_bit_s))
        guarantee_bit_s = self.share * rate_bit_s
        if demand_bit_s > max(_PRESSING * self.reserve_bit_s, ACTIVE * rate_bit_s):
            self.reserve_bit_s, self.raised_s = guarantee_bit_s, now
        elif now > self.raised_s + HOLD_S:
            self.reserve_bit_s = min(_MARGIN * self._most_bit_s(), guarantee_bit_s)

    def is_active(self, rate_bit_s: float) -> bool:
        """Return whether it sent anything worth mentioning in recent counts."""
        return self._most_bit_s() > ACTIVE * rate_bit_s

    def floods(self, rate_bit_s: float) -> bool:
        """Return whether it sends more than the link carries for longer than TCP would."""
        return self.backlog_bit > _backlog_max_bit(rate_bit_s)

    def _most_bit_s(self) -> float:
        return max((demand for _, demand in self.recent), default=0.0)


def share_out(uses: Sequence[Use], rate_bit_s: float) -> None:
    """Set each tenant's limit by all demands: None for no limit, else its ceiling or less."""
    demands = [use.mean_bit_s if use.ceiling >= 1 else min(use.mean_bit_s, use.ceiling * rate_bit_s) for use in uses]
    active = [use for use in uses if use.is_active(rate_bit_s)]
    if len(active) < 2:
        is_free = not any(use.floods(rate_bit_s) for use in active)
    else:
        is_free = sum(demands) <= CONTENDED * rate_bit_s
    over = [] if is_free else [n for n, use in enumerate(uses) if _exceeds(use, demands[n], rate_bit_s)]
    weights = [uses[n].share or _WEIGHT for n in over]
    wants = [max(_GROWTH * demands[n] - uses[n].reserve_bit_s, 0.0) for n in over]
    spare = max((1 - SLACK) * rate_bit_s - sum(use.reserve_bit_s for use in uses), 0.0)
    limits = dict.fromkeys(range(len(uses)), math.inf)
    for number, weight, lent in zip(over, weights, _lent(weights, wants, spare), strict=True):
        # Who wants less than its part is not held to that: a meter just above what TCP sends makes it send less.
        limits[number] = uses[number].reserve_bit_s + max(lent, spare * weight / sum(weights))
    for number, use in enumerate(uses):
        ceiling = math.inf if use.ceiling >= 1 else use.ceiling * rate_bit_s
        limit = min(limits[number], ceiling)
        use.limit_bit_s = None if math.isinf(limit) else limit


def _backlog_max_bit(rate_bit_s: float) -> float:
    return max(BACKLOG_S * rate_bit_s, BACKLOG_MIN_BIT)


def _exceeds(use: Use, demand_bit_s: float, rate_bit_s: float) -> bool:
    """Whether a tenant uses more than is guaranteed; one that is limited already is not let go while others need it."""
    if demand_bit_s <= ACTIVE * rate_bit_s:
        return False
    return use.limit_bit_s is not None or demand_bit_s > _OVER * max(use.share, ACTIVE) * rate_bit_s


def _lent(weights: Sequence[float], wants: Sequence[float], spare: float) -> list[float]:
    """Share out what nobody reserves by weights, to each at most what it wants; what is left, to each once more."""
    got = [0.0] * len(wants)
    unsatisfied = {number for number, want in enumerate(wants) if want > 0}
    while unsatisfied and spare > 0:
        level = min((wants[n] - got[n]) / weights[n] for n in unsatisfied)
        level = min(level, spare / sum(weights[n] for n in unsatisfied))
        for number in unsatisfied:
            got[number] += level * weights[number]
            spare -= level * weights[number]
        satisfied = {n for n in unsatisfied if got[n] >= wants[n] * (1 - 1e-9)}
        if not satisfied:
            break
        unsatisfied -= satisfied
    return [amount + max(spare, 0.0) for amount in got]
