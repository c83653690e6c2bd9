# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The LogP family from measured curves: hidden computation, overheads, latency, availability.

Sources: Culler et al. 1993 (LogP); Kielmann, Bal, Verstoep 2000 (parametrised LogP); Stival 2006 (overheads by hidden
computation); Doerfler, Brightwell 2006 (availability). All times in ns. Curves come from `mpi/overlap`, `overhead`,
`logp` and `availability`: a time as a function of the concurrent computation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]

POINTS_MIN = 4  # two flat and two rising ones


@dataclass(frozen=True)
class HiddenComputation:
    """Result of fitting a curve of time against computation.

    `hidden_ns`: C', the largest computation that does not lengthen the time. `flat_ns`: the time up to C'.
    `added_ns`: what communication adds to longer computations.
    """

    hidden_ns: float
    flat_ns: float
    added_ns: float

    @property
    def overhead_ns(self) -> float:
        """Processor time that cannot be hidden: Os or Or from a curve of the gap, Os + Or from a ping-pong's."""
        return self.flat_ns - self.hidden_ns

    @property
    def availability(self) -> float:
        """Share of an iteration's time left to the program; below 0 if computation makes messages more expensive."""
        return 1 - self.added_ns / self.flat_ns


def hidden_computation(computation_ns: Sequence[float], time_ns: Sequence[float]) -> HiddenComputation:
    """Find where a curve stops being flat and starts to rise with slope 1.

    `computation_ns` and `time_ns`: one value per computation (the median of its samples), from none at all to well
    beyond the hidden one; at least 4, in any order. The points are divided into flat ones (their median) and rising
    ones (median of time less computation) such that the sum of absolute deviations is smallest, which is robust to
    single disturbed points. C' is where both lines cross, limited to the gap between the two parts: where the curve
    jumps, it is the last flat point. ValueError for fewer points, values that are not finite or negative, no
    computation-free point, or a curve that never rises.
    """
    computation, time = _curve(computation_ns, time_ns)
    flat = _flat_points(computation, time)
    low, high = float(computation[flat - 1]), float(computation[flat])
    flat_ns, added_ns = float(np.median(time[:flat])), float(np.median(time[flat:] - computation[flat:]))
    # If the curve jumps right at its end, the last flat point can be slightly longer than the flat time.
    hidden = min(max(flat_ns - added_ns, low), high, flat_ns)
    return HiddenComputation(hidden, flat_ns, added_ns)


@dataclass(frozen=True)
class Parameters:
    """Parametrised LogP at one message size: end-to-end latency, overheads of sending and receiving; in ns."""

    message_bytes: int
    eel_ns: float
    os_ns: float
    or_ns: float

    @property
    def opportunity_ns(self) -> float:
        """Computation that a round trip can hide on one side: 2 EEL - (Os + Or); below 0 if the bound is violated."""
        return 2 * self.eel_ns - self.os_ns - self.or_ns

    @property
    def keeps_bound(self) -> bool:
        """Whether Os + Or ≤ 2 EEL, which holds if a message's overheads are part of its own latency."""
        return self.opportunity_ns >= 0


def wire_latency_ns(parameters: Sequence[Parameters]) -> float:
    """Return L: the smallest message's EEL without both overheads.

    Below 0 if sender and receiver work on one message at the same time. ValueError for no parameters.
    """
    if not parameters:
        raise ValueError("no message size was measured; run logp with at least one")
    smallest = min(parameters, key=lambda each: each.message_bytes)
    return smallest.eel_ns - smallest.os_ns - smallest.or_ns


def _curve(computation_ns: Sequence[float], time_ns: Sequence[float]) -> tuple[Curve, Curve]:
    """Return both as arrays, by ascending computation."""
    computation, time = np.asarray(computation_ns, dtype=np.float64), np.asarray(time_ns, dtype=np.float64)
    if computation.ndim != 1 or computation.shape != time.shape:
        raise ValueError("need one time for each computation")
    if len(computation) < POINTS_MIN:
        raise ValueError(f"a curve needs {POINTS_MIN} points, not {len(computation)}; measure with more --points")
    if not (np.isfinite(computation).all() and np.isfinite(time).all()):
        raise ValueError("a value is not a finite number; leave that launch out")
    if not ((computation >= 0).all() and (time > 0).all()):
        raise ValueError("computations are 0 or more and times above 0; measure again")
    order = np.argsort(computation, kind="stable")
    computation, time = computation[order], time[order]
    # Without a point that hides nothing, the undisturbed time is unknown.
    if computation[0] > 0.05 * time[0]:
        raise ValueError(f"the shortest computation is {computation[0]:.0f} ns; the curve must begin with none")
    return computation, time


def _flat_points(computation: Curve, time: Curve) -> int:
    """Return the number of flat points, from the first; at least two are not flat."""
    deviations = [
        _deviation(time[:flat]) + _deviation(time[flat:] - computation[flat:]) for flat in range(1, len(time) - 1)
    ]
    best = int(np.argmin(deviations))
    if _deviation(time) <= deviations[best]:
        raise ValueError(f"all computations up to {computation[-1]:.0f} ns were hidden; measure with a larger --reach")
    return best + 1


def _deviation(values: Curve) -> float:
    return float(np.abs(values - np.median(values)).sum())
