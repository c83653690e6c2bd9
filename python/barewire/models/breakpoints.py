# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Break points in the law of a message's time: pieces of Hockney's t(s) = α + β·s, their number chosen from the data.

The switch from eager to rendezvous, or a second frame, shows as a jump or a bend. Dynamic programming (Bellman 1961)
finds the best positions for each number of pieces; a further piece must improve the fit by more than chance does at any
position. A position's interval is its profile likelihood: all positions for which the fit is not significantly worse.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# Two points always fit a straight line; three are the least that can contradict it.
POINTS_MIN = 3
BREAKS_MAX = 5
# Smaller differences are no breaks: they improve no model and have no practical effect.
TOLERANCE = 0.02
# Probability that chance alone adds a break to a run: Bonferroni over positions, χ² with two degrees of freedom.
_FALSE_BREAKS = 0.002
# 95 % quantile of χ² with one degree of freedom.
_PROFILE_DEPTH = 3.841
# Standard error of a median relative to that of a mean, for many launches.
_MEDIAN_INEFFICIENCY = math.sqrt(math.pi / 2)

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Piece:
    """From `first_bytes` to `last_bytes`, both measured, a message of s bytes takes `alpha` + `per_byte` · s."""

    first_bytes: int
    last_bytes: int
    alpha: float
    per_byte: float

    def time(self, message_bytes: float) -> float:
        """Return this law's time, in the unit of the fitted times."""
        return self.alpha + self.per_byte * message_bytes


@dataclass(frozen=True)
class Break:
    """The law changes above `last_before` and not above `first_after`; 95 % interval from `low` to `high`, in bytes.

    `jump` is the new law's time at `first_after` minus the old law's, in the unit of the times.
    """

    last_before: int
    first_after: int
    low: int
    high: int
    jump: float


@dataclass(frozen=True)
class Piecewise:
    """Pieces in ascending order and the breaks between them; `error` is the fit's relative error (root mean square)."""

    pieces: tuple[Piece, ...]
    breaks: tuple[Break, ...]
    error: float


def find_breakpoints(
    sizes: Sequence[int], times: Sequence[Sequence[float]], *, tolerance: float = TOLERANCE
) -> Piecewise:
    """Fit times over ascending sizes in bytes; `times` has one value per launch for each size, in one unit.

    Errors are relative; their expected size follows from the spread of the launches and `tolerance`. Where all sizes
    have equally many values, these are of the same launches, and a launch that is slower at all sizes adds no error:
    it hides no break. ValueError for
    fewer than 3 sizes, sizes that do not ascend, or times that are not above 0.
    """
    if len(sizes) < POINTS_MIN or any(a >= b for a, b in pairwise(sizes)) or len(times) != len(sizes):
        raise ValueError(f"need {POINTS_MIN} or more ascending sizes and the times of each")
    if not all(len(of_size) and all(math.isfinite(t) and t > 0 for t in of_size) for of_size in times):
        raise ValueError("times must be above 0, at least one for each size")
    if not tolerance > 0:
        raise ValueError(f"the tolerance must be a share above 0, not {tolerance}")
    compared = _within_launches(times)
    medians = np.array([float(np.median(of_size)) for of_size in compared])
    deviation = math.hypot(_spread(compared), tolerance)
    fits = _Fits(np.asarray(sizes, dtype=np.float64), medians, deviation)
    forward, choices = fits.forward()
    backward = fits.backward()
    count = _best_count(forward[:, -1], len(sizes))
    bounds = _bounds(choices, count, len(sizes))
    pieces = [fits.piece(sizes, start, end) for start, end in pairwise(bounds)]
    breaks = []
    for number, (old, new) in enumerate(pairwise(pieces), 1):
        profile = forward[number - 1] + backward[count - number - 1]
        positions = np.flatnonzero(profile <= profile.min() + _PROFILE_DEPTH)
        # Position p: points 0 … p are before the break, and p + 1 is the first after it.
        low, high = sizes[int(positions[0])], sizes[int(positions[-1]) + 1]
        jump = new.time(new.first_bytes) - old.time(new.first_bytes)
        breaks.append(Break(old.last_bytes, new.first_bytes, low, high, jump))
    fitted = np.array([piece.time(s) for piece in pieces for s in sizes if piece.first_bytes <= s <= piece.last_bytes])
    return Piecewise(tuple(pieces), tuple(breaks), float(np.sqrt(np.mean((fitted / medians - 1) ** 2))))


class _Fits:
    """Straight lines through every range of points: their cost in χ² with relative errors."""

    def __init__(self, sizes: _Floats, times: _Floats, deviation: float) -> None:
        self.count = len(sizes)
        # 1 = α/t + β·s/t: equations with relative errors.
        self._offsets, self._slopes = 1 / times, sizes / times
        self.cost = np.full((self.count, self.count), np.inf)
        for first in range(self.count - POINTS_MIN + 1):
            self.cost[first, first + POINTS_MIN - 1 :] = self._costs_from(first) / deviation**2

    def _costs_from(self, first: int) -> _Floats:
        """Return the sum of squared errors of the lines that begin at `first`, by their last point."""
        u, v = self._offsets[first:], self._slopes[first:]
        ends = slice(POINTS_MIN - 1, None)
        uu, uv, vv = (np.cumsum(product)[ends] for product in (u * u, u * v, v * v))
        su, sv = np.cumsum(u)[ends], np.cumsum(v)[ends]
        determinant = uu * vv - uv * uv
        alpha, beta = (vv * su - uv * sv) / determinant, (uu * sv - uv * su) / determinant
        errors = 1 - alpha[:, None] * u - beta[:, None] * v
        return np.asarray(np.sum(np.tri(len(alpha), len(u), POINTS_MIN - 1) * errors**2, axis=1))

    def piece(self, sizes: Sequence[int], start: int, end: int) -> Piece:
        """Return the line through the points from `start` up to, but not including, `end`."""
        u, v = self._offsets[start:end], self._slopes[start:end]
        uu, uv, vv = float(u @ u), float(u @ v), float(v @ v)
        determinant = uu * vv - uv * uv
        alpha, beta = (vv * u.sum() - uv * v.sum()) / determinant, (uu * v.sum() - uv * u.sum()) / determinant
        return Piece(sizes[start], sizes[end - 1], float(alpha), float(beta))

    def forward(self) -> tuple[_Floats, NDArray[np.intp]]:
        """Return [k, p]: the least cost of points 0 … p in k + 1 pieces, and where the last piece begins."""
        pieces = min(BREAKS_MAX + 1, self.count // POINTS_MIN)
        best = np.full((pieces, self.count), np.inf)
        begins = np.zeros((pieces, self.count), dtype=np.intp)
        best[0] = self.cost[0]
        for k in range(1, pieces):
            # [begin - 1, last]: k pieces before `begin`, and one from there to `last`.
            candidates = best[k - 1, :-1, None] + self.cost[1:]
            best[k], begins[k] = candidates.min(axis=0), candidates.argmin(axis=0) + 1
        return best, begins

    def backward(self) -> _Floats:
        """Return [k, p]: the least cost of the points after p in k + 1 pieces."""
        pieces = min(BREAKS_MAX + 1, self.count // POINTS_MIN)
        best = np.full((pieces, self.count), np.inf)
        best[0, :-1] = self.cost[1:, -1]
        for k in range(1, pieces):
            best[k, :-1] = (self.cost[1:] + best[k - 1]).min(axis=1)
        return best


def _within_launches(times: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """Return times without what whole launches differ by: the factor of each one's median size (median polish)."""
    counts = {len(of_size) for of_size in times}
    if len(counts) > 1 or counts == {1}:
        return times
    logs = np.log(np.array(times))
    factors = np.median(logs - np.median(logs, axis=1, keepdims=True), axis=0)
    return [list(of_size) for of_size in np.exp(logs - factors + np.median(factors))]


def _spread(times: Sequence[Sequence[float]]) -> float:
    """Return the relative standard error of a size's median: the median over all sizes, robust to disturbed ones."""
    errors = [float(np.std(np.log(t), ddof=1)) / math.sqrt(len(t)) for t in times if len(t) > 1]
    return _MEDIAN_INEFFICIENCY * float(np.median(errors)) if errors else 0.0


def _best_count(costs: _Floats, points: int) -> int:
    """Return the number of pieces: each must lower the cost by more than chance does."""
    penalties = 2 * math.log(points / _FALSE_BREAKS) * np.arange(1, len(costs) + 1)
    return int(np.argmin(costs + penalties)) + 1


def _bounds(begins: NDArray[np.intp], count: int, points: int) -> list[int]:
    """Return where each piece begins, and the end."""
    bounds = [points]
    for k in range(count - 1, 0, -1):
        bounds.insert(0, int(begins[k, bounds[0] - 1]))
    return [0, *bounds]
