# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rate limits for requests of ports and hosts; no clock, no I/O."""

from collections.abc import Hashable

# The back-off is reset after this long without a violation.
FORGET_S = 60.0
BACKOFF_MAX_S = 32


class Allowance:
    """A token bucket per key: `burst` at once, `per_s` a second."""

    def __init__(self, burst: int, per_s: int) -> None:
        """Begin with full buckets."""
        self._burst, self._per_s = burst, per_s
        self._tokens: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable, now: float) -> bool:
        """Return whether one more request is allowed."""
        tokens, since = self._tokens.get(key, (float(self._burst), now))
        tokens = min(tokens + (now - since) * self._per_s, float(self._burst))
        allowed = tokens >= 1
        self._tokens[key] = (tokens - allowed, now)
        return allowed

    def age(self, now: float) -> None:
        """Remove full buckets."""
        full_s = self._burst / self._per_s
        self._tokens = {key: state for key, state in self._tokens.items() if state[1] > now - full_s}


class Backoff:
    """Exponential back-off per key: a second, doubled with each further violation."""

    def __init__(self) -> None:
        """Begin without violations."""
        self._last: dict[Hashable, tuple[int, float]] = {}

    def hold_s(self, key: Hashable, now: float) -> int:
        """Return how long to hold off `key`, in whole seconds; 0 if it is held off already."""
        seconds, until = self._last.get(key, (0, 0.0))
        if now < until:
            return 0
        seconds = 1 if now > until + FORGET_S or not seconds else min(seconds * 2, BACKOFF_MAX_S)
        self._last[key] = (seconds, now + seconds)
        return seconds

    def age(self, now: float) -> None:
        """Remove keys without recent violations."""
        self._last = {key: state for key, state in self._last.items() if now <= state[1] + FORGET_S}
