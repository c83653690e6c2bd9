# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the law of a message's time changes: pieces of Hockney's t(s) = α + β·s, as many as the data ask for.

A library that switches from eager to rendezvous, or a link that begins a second frame, shows as a jump or a bend. The
number of pieces is chosen by Schwarz's criterion (1978), their places by dynamic programming over all of them (Bellman
1961), and a place's interval by the profile of the likelihood: where else it could be without the fit getting worse.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# A straight line through two points fits always: it takes a third to say anything.
POINTS_MIN = 3
BREAKS_MAX = 8
# What differs by less is no break: no model is better, and nobody would act on it.
TOLERANCE = 0.02
# α, β and the place.
_PARAMETERS_PER_PIECE = 3
# 95 % of a χ² with one degree of freedom.
_PROFILE_DEPTH = 3.841

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Piece:
    """From `first_bytes` to `last_bytes`, both measured, a message of s bytes takes `alpha` + `per_byte` · s."""

    first_bytes: int
    last_bytes: int
    alpha: float
    per_byte: float

    def time(self, message_bytes: float) -> float:
        """What this law says, in the unit of the times that it was fitted to."""
        return self.alpha + self.per_byte * message_bytes


@dataclass(frozen=True)
class Break:
    """The law changes above `last_before` and not above `first_after`; with 95 % within `low` and `high`, in bytes.

    `jump` is what the new law adds at `first_after` to what the old one would give, in the unit of the times.
    """

    last_before: int
    first_after: int
    low: int
    high: int
    jump: float

    def holds(self, message_bytes: int) -> bool:
        """Whether a switch right above messages of this size explains the break."""
        return self.low <= message_bytes < self.high


@dataclass(frozen=True)
class Piecewise:
    """Pieces in ascending order and the breaks between them; `error` is the fit's relative error (root mean square)."""

    pieces: tuple[Piece, ...]
    breaks: tuple[Break, ...]
    error: float


def find_breakpoints(
    sizes: Sequence[int], times: Sequence[Sequence[float]], *, tolerance: float = TOLERANCE
) -> Piecewise:
    """Fit times over ascending sizes in bytes; `times` has for each size one value of each launch, in one unit.

    Errors count as shares of the time, as large as the launches' spread and `tolerance` together let expect.
    ValueError for fewer than 3 sizes, sizes that do not ascend, or times that are not above 0.
    """
    if len(sizes) < POINTS_MIN or any(a >= b for a, b in pairwise(sizes)) or len(times) != len(sizes):
        raise ValueError(f"need {POINTS_MIN} or more ascending sizes and the times of each")
    if not all(len(of_size) and all(math.isfinite(t) and t > 0 for t in of_size) for of_size in times):
        raise ValueError("times are above 0, and each size has one at least")
    if not tolerance > 0:
        raise ValueError(f"the tolerance is a share above 0, not {tolerance}")
    medians = np.array([float(np.median(of_size)) for of_size in times])
    deviation = math.hypot(_spread(times), tolerance)
    fits = _Fits(np.asarray(sizes, dtype=np.float64), medians, deviation)
    forward, choices = fits.forward()
    backward = fits.backward()
    count = _best_count(forward[:, -1], len(sizes))
    bounds = _bounds(choices, count, len(sizes))
    pieces = [fits.piece(sizes, start, end) for start, end in pairwise(bounds)]
    breaks = []
    for number, (old, new) in enumerate(pairwise(pieces), 1):
        profile = forward[number - 1] + backward[count - number - 1]
        places = np.flatnonzero(profile <= profile.min() + _PROFILE_DEPTH)
        # Place p: points 0 … p are before the break, and p + 1 is the first after it.
        low, high = sizes[int(places[0])], sizes[int(places[-1]) + 1]
        jump = new.time(new.first_bytes) - old.time(new.first_bytes)
        breaks.append(Break(old.last_bytes, new.first_bytes, low, high, jump))
    fitted = np.array([piece.time(s) for piece in pieces for s in sizes if piece.first_bytes <= s <= piece.last_bytes])
    return Piecewise(tuple(pieces), tuple(breaks), float(np.sqrt(np.mean((fitted / medians - 1) ** 2))))


class _Fits:
    """Straight lines through every range of points: their cost in χ², each error as a share of the time."""

    def __init__(self, sizes: _Floats, times: _Floats, deviation: float) -> None:
        self.count = len(sizes)
        # 1 = α/t + β·s/t: equations whose errors are shares.
        self._offsets, self._slopes = 1 / times, sizes / times
        cost = np.full((self.count, self.count), np.inf)
        for first in range(self.count):
            for last in range(first + POINTS_MIN - 1, self.count):
                alpha, beta = self._line(first, last)
                errors = 1 - alpha * self._offsets[first : last + 1] - beta * self._slopes[first : last + 1]
                cost[first, last] = float(errors @ errors) / deviation**2
        self.cost = cost

    def _line(self, first: int, last: int) -> tuple[float, float]:
        u, v = self._offsets[first : last + 1], self._slopes[first : last + 1]
        uu, uv, vv = float(u @ u), float(u @ v), float(v @ v)
        determinant = uu * vv - uv * uv
        return (vv * u.sum() - uv * v.sum()) / determinant, (uu * v.sum() - uv * u.sum()) / determinant

    def piece(self, sizes: Sequence[int], start: int, end: int) -> Piece:
        """The line through the points from `start` up to, and without, `end`."""
        alpha, beta = self._line(start, end - 1)
        return Piece(sizes[start], sizes[end - 1], float(alpha), float(beta))

    def forward(self) -> tuple[_Floats, NDArray[np.intp]]:
        """[k, p]: least cost of points 0 … p in k + 1 pieces, and where the last of them begins."""
        pieces = min(BREAKS_MAX + 1, self.count // POINTS_MIN)
        best = np.full((pieces, self.count), np.inf)
        begins = np.zeros((pieces, self.count), dtype=np.intp)
        best[0] = self.cost[0]
        for k in range(1, pieces):
            for last in range(self.count):
                # All before `begin` in k pieces, and from there to `last` in one.
                candidates = best[k - 1, :last] + self.cost[1 : last + 1, last]
                if len(candidates):
                    place = int(np.argmin(candidates))
                    best[k, last], begins[k, last] = candidates[place], place + 1
        return best, begins

    def backward(self) -> _Floats:
        """[k, p]: least cost of the points after p in k + 1 pieces."""
        pieces = min(BREAKS_MAX + 1, self.count // POINTS_MIN)
        best = np.full((pieces, self.count), np.inf)
        best[0, :-1] = self.cost[1:, -1]
        for k in range(1, pieces):
            for place in range(self.count - 1):
                candidates = self.cost[place + 1, place + 1 :] + best[k - 1, place + 1 :]
                best[k, place] = candidates.min()
        return best


def _spread(times: Sequence[Sequence[float]]) -> float:
    """Relative standard error of a size's median: the middle one of all sizes, so that no disturbed size decides."""
    errors = [float(np.std(np.log(t), ddof=1)) / math.sqrt(len(t)) for t in times if len(t) > 1]
    return float(np.median(errors)) if errors else 0.0


def _best_count(costs: _Floats, points: int) -> int:
    """How many pieces: each must lower the cost by more than its parameters would do by chance."""
    penalties = _PARAMETERS_PER_PIECE * math.log(points) * np.arange(1, len(costs) + 1)
    return int(np.argmin(costs + penalties)) + 1


def _bounds(begins: NDArray[np.intp], count: int, points: int) -> list[int]:
    """Where each piece begins, and the end."""
    bounds = [points]
    for k in range(count - 1, 0, -1):
        bounds.insert(0, int(begins[k, bounds[0] - 1]))
    return [0, *bounds]
