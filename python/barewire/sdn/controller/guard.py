# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How much a port, or a host, may ask of the controller; no clock, no I/O."""

from collections.abc import Hashable

# Who has been quiet for this long begins anew.
FORGET_S = 60.0
BACKOFF_MAX_S = 32


class Allowance:
    """Tokens for each who asks: `burst` at once, `per_s` a second."""

    def __init__(self, burst: int, per_s: int) -> None:
        """Give everybody a full burst."""
        self._burst, self._per_s = burst, per_s
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, who: Hashable, now: float) -> bool:
        """Return whether one more is allowed."""
        left, since = self._left.get(who, (float(self._burst), now))
        left = min(left + (now - since) * self._per_s, float(self._burst))
        allowed = left >= 1
        self._left[who] = (left - allowed, now)
        return allowed

    def age(self, now: float) -> None:
        """Forget those whose burst is full again."""
        full_s = self._burst / self._per_s
        self._left = {who: state for who, state in self._left.items() if state[1] > now - full_s}


class Backoff:
    """For how long whoever does wrong is held off: a second, doubled each time that it goes on."""

    def __init__(self) -> None:
        """Nobody has done wrong."""
        self._last: dict[Hashable, tuple[int, float]] = {}

    def hold_s(self, who: Hashable, now: float) -> int:
        """Return how long to hold off `who`, in whole seconds; 0 if it is held off already."""
        seconds, until = self._last.get(who, (0, 0.0))
        if now < until:
            return 0
        seconds = 1 if now > until + FORGET_S or not seconds else min(seconds * 2, BACKOFF_MAX_S)
        self._last[who] = (seconds, now + seconds)
        return seconds

    def age(self, now: float) -> None:
        """Forget those who have been quiet for long."""
        self._last = {who: state for who, state in self._last.items() if now <= state[1] + FORGET_S}
