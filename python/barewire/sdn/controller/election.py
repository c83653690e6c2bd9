# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which controller of a pair leads. The switches decide, by OpenFlow's roles and generations. No clock, no I/O.

    standby ── no sign of a leader, neither from the peer nor from a switch ──▶ leader, with a newer term
    leader ── a switch refuses its generation, or the peer leads with a newer one ──▶ standby

A generation is a term, a random number of the claim, and a count that the leader increases ten times a second:

    63        44 43       32 31                    0
    ├─ term ────┼─ number ──┼─ beats of this leader ─┤

Switches remember the newest one and refuse older ones (OpenFlow 1.3, 6.3.4), so of two leaders each switch obeys only
the newer one, and the other is told. Any controller that reaches one switch sees there whether another one still leads:
its generation grows. So a standby that cannot reach its peer does not depose a leader that works.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from barewire.sdn.openflow.messages import Role, RoleReply, RoleRequest, SwitchError

# Interval of the leader's claims, and of the standby's questions, at each switch.
BEAT_S = 0.1
# A leader that gave no sign for this time is replaced; one whose API refuses connections, after the shorter time.
SILENT_S = 0.5
REFUSED_S = 0.2
# A switch that has said nothing for this time does not answer: three beats were lost.
ANSWERED_S = 0.4
# A controller that has just started first listens for a leader: its peer's API may be slow, and switches try to connect
# only every few seconds.
LISTEN_S = 2.0
# A process that was not scheduled for the first time has heard nothing, whoever spoke: it listens for the second.
STALLED_S, RECOVER_S = 0.2, 0.2
NUMBER_BITS, BEAT_BITS = 12, 32
_TERM_SHIFT = NUMBER_BITS + BEAT_BITS
# Generations are compared as signed differences, so half of the numbers can be used.
TERM_MAX = (1 << 63 - _TERM_SHIFT) - 1


def is_usable(generation: int | None) -> bool:
    """Return whether a claim can be newer than a switch's generation: not than one that another program's left."""
    return generation is None or generation >> _TERM_SHIFT <= TERM_MAX


@dataclass
class _Seen:
    """A connected switch: our confirmed role, the newest generation it has told, and when anything came from it."""

    role: Role | None = None
    generation: int | None = None
    heard_s: float = -math.inf


@dataclass(frozen=True)
class Change:
    """A controller became the leader, or the standby, and why."""

    is_leader: bool
    reason: str


class Election:
    """One controller's view of who leads; it begins as the standby."""

    def __init__(self, draw: Callable[[], int], now: float) -> None:
        """`draw` returns a random number for each claim, which decides between two claims of the same term."""
        self.is_leader = False
        self.since_s = now
        self._draw = draw
        self._term = self._number = self._beat = 0
        self._newest = 0
        self._switches: dict[str, _Seen] = {}
        self._led_s = -math.inf
        self._claim_s = now + LISTEN_S
        self._beat_s = self._polled_s = now
        self._changes: list[Change] = []

    @property
    def generation(self) -> int:
        """The generation of our latest claim; 0 before the first."""
        return self._term << _TERM_SHIFT | self._number << BEAT_BITS | self._beat if self._term else 0

    @property
    def newest(self) -> int:
        """The newest generation known, ours or another's."""
        return max(self._newest, self.generation)

    @property
    def switches(self) -> int:
        """The number of connected switches."""
        return len(self._switches)

    def connected(self, switch: str) -> list[RoleRequest]:
        """Add a switch; return what to ask it first."""
        self._switches[switch] = seen = _Seen()
        # A leader, too, asks first, and so learns of a generation that is not usable before its claim is refused.
        return [RoleRequest(Role.NOCHANGE), *(self._requests(seen) if self.is_leader else [])]

    def disconnected(self, switch: str) -> None:
        """Remove a switch."""
        self._switches.pop(switch, None)

    def switch_heard(self, switch: str, now: float) -> None:
        """Handle that anything came from a switch."""
        if (seen := self._switches.get(switch)) is not None:
            seen.heard_s = now

    def answering(self, now: float) -> int:
        """Return the number of switches that answer; a connection that is dead may be known as such much later."""
        return sum(seen.heard_s > now - ANSWERED_S for seen in self._switches.values())

    def replied(self, switch: str, reply: RoleReply, now: float) -> bool:
        """Handle a switch's reply; True if it has just accepted us as its master."""
        seen = self._switches.get(switch)
        if seen is None or not is_usable(reply.generation):
            return False
        before, seen.generation = seen.generation, reply.generation
        if reply.generation is not None:
            self._newest = max(self._newest, reply.generation)
            if before is not None and reply.generation > before and not self._is_ours(reply.generation):
                self._leader_seen(now)
        was_master, seen.role = seen.role is Role.MASTER, reply.role
        return self.is_leader and reply.role is Role.MASTER and not was_master

    def refused(self, switch: str, error: SwitchError, now: float) -> None:
        """Handle an error by which a switch says that it has another master."""
        seen = self._switches.get(switch)
        if seen is None or not self.is_leader:
            return
        request = error.request
        if isinstance(request, RoleRequest):
            if request.generation >> BEAT_BITS != self.generation >> BEAT_BITS:
                return  # of an earlier term
            self._step_down(
                f"{switch} refuses our generation {request.generation:#x} as stale: it has heard a newer one", now
            )
        elif seen.role is Role.MASTER:
            self._step_down(f"{switch} has another master, and refuses our changes", now)

    def heard(self, is_leader: bool, generation: int, switches: int, now: float) -> None:
        """Handle a sign of life of the peer: whether it leads, by which generation, and how many switches answer it."""
        if not is_leader or not is_usable(generation):
            return
        self._newest = max(self._newest, generation)
        if self.is_leader and generation > self.generation:
            self._step_down(f"the peer leads with the newer generation {generation:#x}", now)
        elif self.is_leader and self._is_ours(generation):
            self._step_down("the peer drew the same generation", now)
        elif not self.is_leader and (switches or not self.answering(now)):
            # One that no switch answers, while some answer us, cannot lead.
            self._leader_seen(now)

    def peer_refused(self, now: float) -> None:
        """Handle that nobody listens at the peer's address: a leader there would be seen at the switches."""
        self._claim_s = min(self._claim_s, max(now, self._led_s) + REFUSED_S)

    def poll(self, now: float) -> dict[str, list[RoleRequest]]:
        """Claim the lead if it is time; return the requests that are due, by switch."""
        if now > self._polled_s + STALLED_S:
            self._claim_s = max(self._claim_s, now + RECOVER_S)
        self._polled_s = now
        if not self.is_leader and now >= self._claim_s:
            self._lead(now)
        if now < self._beat_s:
            return {}
        self._beat_s = now + BEAT_S
        if self.is_leader:
            self._beat += 1
        return {name: self._requests(seen) for name, seen in self._switches.items()}

    def next_s(self) -> float:
        """Return when to poll again."""
        return self._beat_s if self.is_leader else min(self._beat_s, self._claim_s)

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _requests(self, seen: _Seen) -> list[RoleRequest]:
        if self.is_leader:
            return [RoleRequest(Role.MASTER, self.generation)]
        if seen.role is Role.SLAVE:
            return [RoleRequest(Role.NOCHANGE)]
        # The generation may be stale by now; then the next one is tried.
        known = [RoleRequest(Role.SLAVE, seen.generation or 0)] if seen.role is not None else []
        return [*known, RoleRequest(Role.NOCHANGE)]

    def _lead(self, now: float) -> None:
        # At the end of all terms the number decides.
        term = min((self.newest >> _TERM_SHIFT) + 1, TERM_MAX)
        self._term, self._beat, self.is_leader, self.since_s = term, 0, True, now
        self._number = self._draw() % (1 << NUMBER_BITS)
        self._beat_s = now
        for seen in self._switches.values():
            seen.role = None
        silent = "" if self._led_s == -math.inf else f": no sign of the other for {now - self._led_s:.2f} s"
        self._changes.append(Change(True, f"generation {self.generation:#x}, {len(self._switches)} switches{silent}"))

    def _step_down(self, reason: str, now: float) -> None:
        self.is_leader, self.since_s = False, now
        for seen in self._switches.values():
            seen.role = None
        self._changes.append(Change(False, reason))
        self._leader_seen(now)

    def _leader_seen(self, now: float) -> None:
        self._led_s = now
        if not self.is_leader:
            # Without a switch there is nothing to control, nor a way to see whether the leader still claims.
            self._claim_s = now + (SILENT_S if self._switches else LISTEN_S)

    def _is_ours(self, generation: int) -> bool:
        return generation >> BEAT_BITS == self.generation >> BEAT_BITS
