# SPDX-License-Identifier: Apache-2.0 OR MIT
"""LogP, LogGP and LogGPS from the measured functions of parametrised LogP.

A message of m bytes takes o + L + (m − 1)·G + o; consecutive ones leave g + (m − 1)·G apart; above S bytes sender and
receiver synchronise first. Sources: Culler et al. 1993 (LogP), Alexandrov et al. 1995 (LogGP), Ino et al. 2001
(LogGPS), Kielmann, Bal, Verstoep 2000 (parametrised LogP). Os and Or are measured by hidden computation (Stival 2006).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from barewire.models.breakpoints import POINTS_MIN, Break, Piecewise, find_breakpoints
from barewire.models.hockney import Residual, residuals, worst_of
from barewire.models.times import CannotSay, Estimate, Floats, Times, estimate, lines


@dataclass(frozen=True)
class Synchronisation:
    """S: from above `last_eager_bytes`, at latest from `first_rendezvous_bytes` on, messages cost `step_us` more."""

    last_eager_bytes: int
    first_rendezvous_bytes: int
    step_us: Estimate


@dataclass(frozen=True)
class LogGP:
    """The parameters; the per-byte ones are None if the times do not determine them, and `unsaid` says why.

    `overhead_us` is the mean of both sides'. `residual` is the worst of EEL(m) against the model.
    """

    latency_us: Estimate
    send_overhead_us: Estimate
    receive_overhead_us: Estimate
    overhead_us: Estimate
    gap_us: Estimate
    us_per_byte: Estimate | None
    synchronisation: Synchronisation | None
    residual: Residual | None
    unsaid: tuple[str, ...]


def fit_loggp(
    eel: Times,
    send: Times,
    receive: Times,
    gap: Times,
    *,
    is_frame: Callable[[Break], bool] = lambda point: False,
) -> LogGP:
    """Fit all parameters; the four tables have the same sizes and come from the same launches (`mpi/logp`).

    `is_frame` says which breaks are further frames, and so cannot be S.
    L, o and g are those of a message of 1 B, on the first piece of each function, or with fewer than three sizes on it
    those of the shortest message. G is the slope of the last piece of g(m). CannotSay for differing sizes.
    """
    if not eel.sizes == send.sizes == receive.sizes == gap.sizes:
        raise CannotSay("EEL, Os, Or and g need the same sizes; measure all variants of logp")
    # The same seed draws the same launches of each table.
    eel_draws, send_draws, receive_draws, gap_draws = (
        times.draws(np.random.default_rng(0)) for times in (eel, send, receive, gap)
    )
    laws = _law(eel), _law(gap)
    short = _first_sizes(laws[0], eel)
    one_byte = _at_one_byte(eel.sizes[:short], eel_draws[:, :short], eel_draws[:, :short])
    o_send = _at_one_byte(eel.sizes[:short], send_draws[:, :short], eel_draws[:, :short])
    o_receive = _at_one_byte(eel.sizes[:short], receive_draws[:, :short], eel_draws[:, :short])
    first_gaps = _first_sizes(laws[1], gap)
    g = _at_one_byte(gap.sizes[:first_gaps], gap_draws[:, :first_gaps], gap_draws[:, :first_gaps])
    latency = one_byte - o_send - o_receive
    per_byte, unsaid = _per_byte(laws[1], gap, gap_draws)
    launches = eel.launches
    residual = None
    if per_byte is not None:
        modelled = one_byte[0] + per_byte[0] * (np.asarray(eel.sizes) - 1)
        residual = worst_of(residuals(eel.sizes, eel.medians, modelled))
    return LogGP(
        latency_us=estimate(latency, launches, eel.confidence),
        send_overhead_us=estimate(o_send, launches, eel.confidence),
        receive_overhead_us=estimate(o_receive, launches, eel.confidence),
        overhead_us=estimate((o_send + o_receive) / 2, launches, eel.confidence),
        gap_us=estimate(g, launches, eel.confidence),
        us_per_byte=None if per_byte is None else estimate(per_byte, launches, eel.confidence),
        synchronisation=None if laws[0] is None else _synchronisation(laws[0], eel, eel_draws, is_frame),
        residual=residual,
        unsaid=unsaid,
    )


def piece_lines(law: Piecewise, number: int, times: Times, draws: Floats) -> tuple[Floats, Floats]:
    """Return α and β of one piece for every draw; the pieces' bounds are those of the estimate."""
    piece = law.pieces[number]
    first, end = times.sizes.index(piece.first_bytes), times.sizes.index(piece.last_bytes) + 1
    return lines(times.sizes[first:end], draws[:, first:end])


def _synchronisation(
    law: Piecewise, times: Times, draws: Floats, is_frame: Callable[[Break], bool]
) -> Synchronisation | None:
    """Return the largest upward step whose interval lies above 0; None if there is none."""
    found = []
    for number, point in enumerate(law.breaks):
        if is_frame(point):
            continue
        step = estimate(_steps(law, number, times, draws), times.launches, times.confidence)
        if step.surely_above_zero:
            found.append(Synchronisation(point.last_before, point.first_after, step))
    return max(found, key=lambda each: each.step_us.value, default=None)


def _steps(law: Piecewise, number: int, times: Times, draws: Floats) -> Floats:
    (a0, b0), (a1, b1) = (piece_lines(law, each, times, draws) for each in (number, number + 1))
    return np.asarray(a1 - a0 + (b1 - b0) * law.breaks[number].first_after)


def _law(times: Times) -> Piecewise | None:
    return find_breakpoints(times.sizes, times.by_size()) if len(times.sizes) >= POINTS_MIN else None


def _first_sizes(law: Piecewise | None, times: Times) -> int:
    """Return the number of sizes in the first piece; the shortest one alone if there are too few for a line."""
    return 1 if law is None else times.sizes.index(law.pieces[0].last_bytes) + 1


def _at_one_byte(sizes: tuple[int, ...], draws: Floats, weights: Floats) -> Floats:
    if len(sizes) < POINTS_MIN:
        return draws[:, 0]
    alpha, beta = lines(sizes, draws, weights)
    return alpha + beta


def _per_byte(law: Piecewise | None, gap: Times, draws: Floats) -> tuple[Floats | None, tuple[str, ...]]:
    if law is None:
        return None, (f"G needs g(m) of {POINTS_MIN} sizes or more, not {len(gap.sizes)}; measure with more --sizes",)
    slope = piece_lines(law, len(law.pieces) - 1, gap, draws)[1]
    if not estimate(slope, gap.launches, gap.confidence).surely_above_zero:
        return None, ("g(m) does not grow with the size, so G is unknown; measure longer messages",)
    return slope, ()
